"""The order axis: which slice goes next, on which channel, with what reliability."""

from __future__ import annotations

from testbed.axes import Axis
from testbed.policy.order.base import Order
from testbed.policy.order.dgt import Dgt
from testbed.policy.order.fifo import Fifo
from testbed.policy.order.p3 import P3

ORDERS: Axis[Order] = Axis("order", {"fifo": Fifo, "p3": P3, "dgt": Dgt}, base=Order)
