"""The interface between a training job and the roles: gradients and values by key, for a whole step or by segment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from testbed.key_shape import KeyShape
from testbed.state import Stateful
from testbed.training.shapes import ModelShape

State = dict[str, Tensor | int | float]  # content of a checkpoint, flat, by name


@dataclass(frozen=True, slots=True)
class StepResult:
    """Mean loss over ``samples``, and its gradient: one new flat float32 tensor per key, on the computing device."""

    loss: float
    samples: int
    gradients: list[Tensor]


@dataclass(frozen=True, slots=True)
class Score:
    """Accuracy (share of test samples, or of characters) and mean loss on the test set.

    ``chance``: the accuracy of always guessing the most frequent label; ``None``: unknown.
    """

    accuracy: float
    loss: float
    chance: float | None = None


class Learner(Protocol):
    """What the worker role needs of a training job."""

    sizes: tuple[int, ...]  # elements of each key

    @property
    def shapes(self) -> tuple[KeyShape, ...]:
        """Shapes of the keys."""

    epoch: int  # the pass over this worker's samples that its last step belonged to

    def gradient(self, step: int) -> StepResult: ...
    def values(self) -> list[Tensor]: ...
    def load(self, values: list[Tensor]) -> None: ...
    def evaluate(self, values: list[Tensor]) -> Score | None: ...


class SegmentedStep(Protocol):
    """One step, segment by segment: all forward in order, then all backward in reverse.

    Values of segments may change between calls: a segment must have its new values before its ``forward_segment``, and
    keep them until its ``backward_segment`` has returned.
    """

    samples: int

    def forward_segment(self, index: int) -> None: ...

    def backward_segment(self, index: int) -> list[Tensor]:
        """Return the gradients of the segment's keys, in key order."""

    @property
    def loss(self) -> float:
        """Mean loss; available after the last segment's forward pass."""


class SegmentedLearner(Learner, Stateful, Protocol):
    """A learner that supports segmented steps and checkpoints."""

    @property
    def widths(self) -> Mapping[int, int]:
        """Elements of a row of each key that is an embedding table."""

    def epoch_of(self, step: int) -> int:
        """Return the pass over this worker's samples that a step belongs to."""

    def rows(self, step: int) -> Mapping[int, Tensor]:
        """Return, by key, the rows of each embedding table that the batch of ``step`` needs, int64 and ascending."""

    @property
    def shape(self) -> ModelShape: ...

    def begin(self, step: int) -> SegmentedStep: ...
    def load_segment(self, index: int, values: list[Tensor]) -> None: ...


def values_sha256(values: Iterable[Tensor]) -> str | None:
    """Return the SHA-256 of the values' bytes in key order; ``None`` for meta tensors or if there are no values."""
    digest = hashlib.sha256()
    any_ = False
    for value in values:
        any_ = True
        if value.is_meta:
            return None
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest() if any_ else None
