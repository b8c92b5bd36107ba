"""No gradient that is not finite leaves a worker unseen: it would spoil every residual and moment that it meets.

The sum of a tensor is finite if all its elements are (or it overflows, and is looked at once more), so the test costs
one pass. Faults of kind ``nan`` are made here as well, so that they take the way of real ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from testbed.errors import RunFailed
from testbed.plan.model import NodePlan, Plan
from testbed.training.learner import Score, SegmentedLearner, SegmentedStep, State, StepResult
from testbed.training.shapes import ModelShape

Record = Callable[..., None]


def guarded(plan: Plan, node: NodePlan, learner: SegmentedLearner) -> SegmentedLearner:
    """The learner, watched as the Plan says; as it is, where nothing is to be watched or there are no values."""
    mine = [fault for fault in plan.faults if fault.kind == "nan" and node.name in fault.targets]
    if plan.training.compute == "modelled" or (plan.recovery.on_nan == "ignore" and not mine):
        return learner
    poisoned = {fault.round for fault in mine if fault.round is not None}
    return Guarded(learner, node.name, poisoned, plan.recovery.on_nan)


class Guarded:
    """A ``SegmentedLearner``. ``record`` may be set: it is told of faults made and of gradients left out.

    ``poisoned``: rounds in whose first gradient a fault of the Plan puts a NaN.
    """

    def __init__(self, inner: SegmentedLearner, node: str, poisoned: set[int], on_nan: str) -> None:
        self.inner, self._node, self._poisoned, self._on_nan = inner, node, poisoned, on_nan
        self.round: int | None = None  # that it works for; unless said, a step is a round
        self.sizes = inner.sizes
        self.record: Record = lambda kind, **fields: None

    def gradient(self, step: int) -> StepResult:
        result = self.inner.gradient(step)
        return StepResult(result.loss, result.samples, self.checked(step, result.gradients))

    def begin(self, step: int) -> SegmentedStep:
        return _GuardedStep(self, step, self.inner.begin(step))

    def checked(self, step: int, gradients: list[Tensor]) -> list[Tensor]:
        """The gradients, or zeros. Raises ``RunFailed`` where one is not finite, and that ends the run."""
        round_ = step if self.round is None else self.round
        if round_ in self._poisoned:
            self._poisoned.discard(round_)
            gradients[0].view(-1)[0] = math.nan
            self.record("fault", fault="nan", targets=self._node, begins=True)
        for number, gradient in enumerate(gradients if self._on_nan != "ignore" else ()):
            if not _finite(gradient):
                return self._spoilt(step, number, gradients)
        return gradients

    def _spoilt(self, step: int, number: int, gradients: list[Tensor]) -> list[Tensor]:
        count = int((~torch.isfinite(gradients[number])).sum())
        what = f"non-finite gradient: {self._node}, step {step}, tensor {number}, {count} elements"
        if self._on_nan != "skip":
            raise RunFailed(f"{what} (recovery.on_nan: skip leaves such a gradient out)")
        self.record("warning", message=f"{what}: left out of the round")
        return [torch.zeros_like(gradient) for gradient in gradients]

    # ---- passed on ----------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.inner.epoch

    @epoch.setter
    def epoch(self, number: int) -> None:
        self.inner.epoch = number

    @property
    def shape(self) -> ModelShape:
        return self.inner.shape

    def values(self) -> list[Tensor]:
        return self.inner.values()

    def load(self, values: list[Tensor]) -> None:
        self.inner.load(values)

    def load_segment(self, index: int, values: list[Tensor]) -> None:
        self.inner.load_segment(index, values)

    def evaluate(self, values: list[Tensor]) -> Score | None:
        return self.inner.evaluate(values)

    def state(self) -> State:
        return self.inner.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.inner.load_state(state)


class _GuardedStep:
    """A step cut in segments. ``skip`` would leave out one segment and not the others, so there it is refused."""

    def __init__(self, guard: Guarded, step: int, inner: SegmentedStep) -> None:
        self._guard, self._step, self._inner = guard, step, inner
        self.samples = inner.samples

    def forward_segment(self, index: int) -> None:
        self._inner.forward_segment(index)

    def backward_segment(self, index: int) -> list[Tensor]:
        return self._guard.checked(self._step, self._inner.backward_segment(index))

    @property
    def loss(self) -> float:
        return self._inner.loss


def _finite(tensor: Tensor) -> bool:
    return math.isfinite(float(tensor.sum())) or bool(torch.isfinite(tensor).all())
