"""A table of layers under construction, and the model shape made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.training.shapes import ModelShape, SegmentShape


@dataclass(slots=True)
class Layers:
    """Sizes of keys and work, segment by segment, in forward order."""

    _sizes: dict[str, list[int]] = field(default_factory=dict)
    _flops: dict[str, float] = field(default_factory=dict)

    def add(self, segment: str, sizes: list[int], multiply_adds: float = 0) -> None:
        """Add keys and work (multiply-adds of one sample's forward pass) to a segment, at its end."""
        self._sizes.setdefault(segment, []).extend(sizes)
        self._flops[segment] = self._flops.get(segment, 0) + 2 * multiply_adds

    def linear(self, segment: str, inputs: int, outputs: int, tokens: int = 1) -> None:
        """A matrix with a bias, applied to every token."""
        self.add(segment, [inputs * outputs, outputs], inputs * outputs * tokens)

    def norm(self, segment: str, width: int) -> None:
        """Scale and shift of a normalisation; its work is not counted."""
        self.add(segment, [width, width])

    def shape(self, name: str) -> ModelShape:
        """Return the model's shape. Backward work is twice the forward work, except in the first segment."""
        segments: list[SegmentShape] = []
        for segment, sizes in self._sizes.items():
            forward = self._flops[segment]
            backward = 2 * forward if segments else forward  # the gradient with respect to the samples is not needed
            segments.append(SegmentShape(segment, tuple(sizes), forward, backward))
        return ModelShape(name, tuple(segments))
