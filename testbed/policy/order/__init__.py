"""The order axis: which slice goes next, on which channel, with what reliability."""

from __future__ import annotations

from testbed.policy.order.fifo import Fifo

ORDERS = {"fifo": Fifo}
