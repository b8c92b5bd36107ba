"""The shape of a model: its segments, the sizes of their keys, and their work. This module does not import torch.

Real and declared models have the same kind of shape, so timing and slicing treat them equally.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from testbed.key_shape import KeyShape, shapes_of


@dataclass(frozen=True, slots=True)
class SegmentShape:
    """A block of layers: elements of each of its keys, and floating-point operations for one sample (2 per MAC).

    dimensions  dimensions of each key's tensor; empty for a declared model, which has sizes only
    outputs     elements of the activation for the next segment, for one sample; 0: unknown
    rows        rows of this activation as a matrix, for one sample: its tokens, or 1
    held        elements of one sample's forward pass that the backward pass needs; 0: unknown
    """

    name: str
    sizes: tuple[int, ...]
    forward_flops: float
    backward_flops: float
    dimensions: tuple[tuple[int, ...], ...] = ()
    outputs: int = 0
    rows: int = 1
    held: int = 0


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Segments in forward order. Keys are numbered through in that order.

    tied  whether the last segment computes with a key of the first one
    """

    name: str
    segments: tuple[SegmentShape, ...]
    tied: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each key."""
        return tuple(size for segment in self.segments for size in segment.sizes)

    @property
    def shapes(self) -> tuple[KeyShape, ...]:
        """Return the shapes of the keys. If dimensions are unknown, each key is a vector."""
        if not all(segment.dimensions for segment in self.segments if segment.sizes):
            return tuple(KeyShape((size,)) for size in self.sizes)
        return shapes_of([each for segment in self.segments for each in segment.dimensions])

    @property
    def keys(self) -> tuple[range, ...]:
        return key_ranges(tuple(len(segment.sizes) for segment in self.segments))

    @property
    def forward_flops(self) -> float:
        return sum(segment.forward_flops for segment in self.segments)

    def part(self, segments: Iterable[int]) -> ModelShape:
        """Return the shape of the model's part that has only the given segments, in the given order."""
        return ModelShape(self.name, tuple(self.segments[number] for number in segments))

    def time_shares(self) -> tuple[tuple[float, float], ...]:
        """Return each segment's (forward, backward) share of a step's time, in proportion to operations; the sum is 1.

        If the work is unknown, shares are in proportion to elements, and backward takes twice as long as forward.
        """
        work = [(segment.forward_flops, segment.backward_flops) for segment in self.segments]
        if not any(map(sum, work)):
            work = [(sum(segment.sizes), 2.0 * sum(segment.sizes)) for segment in self.segments]
        total = sum(map(sum, work))
        return tuple((forward / total, backward / total) for forward, backward in work)


def key_ranges(counts: tuple[int, ...]) -> tuple[range, ...]:
    """``key_ranges((2, 3))`` is ``(range(0, 2), range(2, 5))``."""
    starts = [sum(counts[:index]) for index in range(len(counts))]
    return tuple(range(start, start + count) for start, count in zip(starts, counts, strict=True))
