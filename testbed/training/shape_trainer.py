"""A training job on torch's meta device, with sizes only, for models too large for real training."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import torch
from torch import Tensor

from testbed.state import Remembering
from testbed.training.learner import SegmentedStep, StepResult
from testbed.training.shapes import ModelShape


@cache
def _tensor(size: int) -> Tensor:
    """Return the one meta tensor of that size. All workers share it, so that its messages are measured once."""
    return torch.empty(size, device="meta")


class ShapeTrainer(Remembering):
    """Keys of given sizes. Nothing is computed, so there is no loss and no accuracy."""

    def __init__(self, shape: ModelShape, batch_size: int) -> None:
        self.shape = shape
        self.sizes = shape.sizes
        self.shapes = shape.shapes
        self._batch_size = batch_size
        self._values = [_tensor(size) for size in self.sizes]

    epoch = 0

    def epoch_of(self, step: int) -> int:
        return 0

    widths: Mapping[int, int] = MappingProxyType({})  # no tables: rows depend on samples, and there are no samples

    def rows(self, step: int) -> Mapping[int, Tensor]:
        return {}

    def gradient(self, step: int) -> StepResult:
        return StepResult(float("nan"), self._batch_size, list(self._values))

    def begin(self, step: int) -> SegmentedStep:
        return ShapeStep(self.shape, self._values, self._batch_size)

    def values(self) -> list[Tensor]:
        return list(self._values)

    def load(self, values: list[Tensor]) -> None:
        pass

    def load_segment(self, index: int, values: list[Tensor]) -> None:
        pass

    def evaluate(self, values: list[Tensor]) -> None:
        return None


class ShapeStep:
    """A step whose gradients are sizes."""

    loss = float("nan")

    def __init__(self, shape: ModelShape, values: list[Tensor], samples: int) -> None:
        self._keys = shape.keys
        self._values = values
        self.samples = samples

    def forward_segment(self, index: int) -> None:
        pass

    def backward_segment(self, index: int) -> list[Tensor]:
        return [self._values[key] for key in self._keys[index]]
