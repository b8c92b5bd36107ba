"""First in, first out: every message has the same priority and travels on the reliable channel.

``slice`` and ``overlap`` are options here too, so that an experiment can separate the gain of priorities from that of
slicing and overlapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.axes import option
from testbed.policy.order.base import Order
from testbed.policy.shard.slices import ELEMENT_BYTES, Slice, alike, grouped, sliced

WHOLE = 16 << 30  # bytes; no tensor is larger
AUTO = 0  # slices of about ``auto_bytes`` where these leave results the same bit by bit; elsewhere as WHOLE
_AUTO_SLICES = 32  # of a model: each hop begins after the first slice, so it adds 3 % of the time to send the model
# bounds on a slice, because a message costs a server about 60 µs
LEAST_BYTES = 1 << 20
MOST_BYTES = 4 << 20
MOST_SLICES = 512  # of a large model: smaller slices would save, per hop, less than 0.2 % of the time to send it
FEW_TENSORS = 64  # up to this many tensors, a message for each costs little
OVERLAP: dict[str, Any] = {
    "help": "layers: send a layer when its backward pass is done, begin the next forward pass with the first layer "
    "that is back; none: work, then send, then wait for all",
    "choices": ("layers", "none"),
}


def auto_bytes(model_bytes: int) -> int:
    """Return the size of slices in bytes for a model of ``model_bytes`` (as float32).

    It depends on nothing else, because a run may be resumed over other links or on another back end.
    """
    return max(min(MOST_BYTES, max(LEAST_BYTES, model_bytes // _AUTO_SLICES)), model_bytes // MOST_SLICES)


def together(sizes: Sequence[int]) -> list[list[int]] | None:
    """Return the keys of each bucket, which is about as large as a slice; ``None`` if each key travels alone.

    sizes  elements of each tensor of the model
    """
    if len(sizes) <= FEW_TENSORS:
        return None
    return grouped(range(len(sizes)), sizes, auto_bytes(ELEMENT_BYTES * sum(sizes)))


class Fifo(Order):
    """All keys have the same priority: first in, first out."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """``slice``: the largest piece of a tensor in bytes (as float32). While one piece is sent, the next is encoded,
        and the hops of a round overlap. ``whole``: tensors are not cut. ``auto``: equal pieces of about 1/32 of the
        model, at least 1 MiB and at most 4 MiB, or of 1/512 of a model above 2 GiB. ``auto`` cuts only where workers
        wait for each other, and codecs, the servers' optimizer and relays treat each element alike: results then stay
        the same bit by bit. If a model has more than 64 tensors, and codecs and the servers' optimizer treat each
        element alike, its small tensors are also joined into buckets of about that size.
        """

        slice: int = option(AUTO, "largest piece of a tensor", unit="bytes", words={"auto": AUTO, "whole": WHOLE})
        overlap: str = option("none", **OVERLAP)

    def __init__(self, options: Any) -> None:
        self._slice_bytes = options.slice

    @classmethod
    def overlaps(cls, options: Any) -> bool:
        return bool(options.overlap == "layers")

    def cut(self, slices: Iterable[Slice]) -> tuple[Slice, ...]:
        if self._slice_bytes != AUTO:
            return sliced(slices, max(1, self._slice_bytes // ELEMENT_BYTES))
        slices = tuple(slices)
        model_bytes = ELEMENT_BYTES * sum(each.stop - each.start for each in slices)
        return alike(slices, auto_bytes(model_bytes) // ELEMENT_BYTES)

    def priority(self, key: int) -> int:
        return 0
