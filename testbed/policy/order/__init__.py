"""The order axis: which slice goes next, on which channel, with what reliability."""

from __future__ import annotations

from typing import Any

from testbed.policy.order.dgt import Dgt
from testbed.policy.order.fifo import Fifo
from testbed.policy.order.p3 import P3

# Every class is made as ``cls(cls.Options(...))`` and keeps to what ``Fifo`` offers.
ORDERS: dict[str, type[Any]] = {"fifo": Fifo, "p3": P3, "dgt": Dgt}
