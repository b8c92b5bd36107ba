"""Broken on purpose: it opens one channel, and its options send blocks on three."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from testbed.policy.order.dgt import Dgt
from testbed.policy.shard.slices import Slice


class OtherChannels(Dgt):
    """DGT without its cuts."""

    @dataclass(frozen=True, slots=True)
    class Options(Dgt.Options):
        """Those of DGT."""

    @classmethod
    def channels(cls, options: Any) -> int:
        return 1

    def cut(self, slices: Iterable[Slice]) -> tuple[Slice, ...]:
        return tuple(slices)
