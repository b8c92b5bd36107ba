"""First in, first out: every message has the same priority and travels on the reliable channel.

``slice`` and ``overlap`` are options here too, so that what priorities gain can be told from what slicing and
overlapping gain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.axes import option
from testbed.policy.order.base import Order
from testbed.policy.shard.slices import ELEMENT_BYTES, Slice, alike, grouped, sliced

WHOLE = 16 << 30  # bytes; no tensor is larger
AUTO = 0  # about ``auto_bytes`` where slices give the bits that whole tensors give, else WHOLE
_AUTO_SLICES = 32  # of a model: each hop of a round begins after one slice, so adds 3 % of the time to send the model
# a message costs a server some 60 us
LEAST_BYTES = 1 << 20
MOST_BYTES = 4 << 20
MOST_SLICES = 512  # of a larger model: shorter hops would save less than 0.2 % of the time to send it
FEW_TENSORS = 64  # a message of its own for each of so many costs little
OVERLAP: dict[str, Any] = {
    "help": "layers: send a layer when its backward pass is done, begin the next forward pass with the first layer "
    "that is back; none: work, then send, then wait for all",
    "choices": ("layers", "none"),
}


def auto_bytes(model_bytes: int) -> int:
    """Return the size of slices that is chosen for a model of such a size (as float32).

    It depends on nothing else: a run may be resumed over other links, and on another back end.
    """
    return max(min(MOST_BYTES, max(LEAST_BYTES, model_bytes // _AUTO_SLICES)), model_bytes // MOST_SLICES)


def together(sizes: Sequence[int]) -> list[list[int]] | None:
    """Return the keys of each bucket, of a model whose tensors have ``sizes`` elements: about a slice together.

    ``None``: each key travels alone.
    """
    if len(sizes) <= FEW_TENSORS:
        return None
    return grouped(range(len(sizes)), sizes, auto_bytes(ELEMENT_BYTES * sum(sizes)))


class Fifo(Order):
    """All keys have the same priority: first in, first out."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """``slice``: tensors are cut into pieces of at most so many bytes (as float32), so that one piece is sent while
        the next is encoded, and the hops of a round overlap. ``whole``: not cut. ``auto``: into equal pieces of about a
        32nd of the model, but 1 MiB at least and 4 MiB at most, or a 512th of a model above 2 GiB, where workers wait
        for each other and codecs, the servers' optimizer and relays treat each element alike, which leaves results the
        same bit by bit; else whole. Tensors of a model with more than 64 are also joined, to about that size, and
        travel together, where codecs and the servers' optimizer treat each element alike.
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
