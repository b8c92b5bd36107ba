"""Checks every gradient for NaN and infinity: one such number would spoil every residual and moment it is added to.

Faults of kind ``nan`` are injected here, before the check, so that they have the same effect as a real NaN. Scripts'
gradients are checked by the scripts' store (``testbed.kvstore``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from testbed.finite import end_or_leave_out, first_not_finite
from testbed.plan.model import NodePlan, Plan
from testbed.training.learner import SegmentedLearner, SegmentedStep, StepResult

Record = Callable[..., None]


def guarded(plan: Plan, node: NodePlan, learner: SegmentedLearner) -> SegmentedLearner:
    """Return the learner with the Plan's checks around it, or the learner itself if there is nothing to check.

    There is nothing to check if the Plan has neither checks nor ``nan`` faults for this node, or if compute is
    modelled: then gradients have no numbers.
    """
    mine = [fault for fault in plan.faults if fault.kind == "nan" and node.name in fault.targets]
    if plan.training.compute == "modelled" or (plan.recovery.on_nan == "ignore" and not mine):
        return learner
    poisoned = {fault.round for fault in mine if fault.round is not None}
    return cast(SegmentedLearner, Guarded(learner, node.name, poisoned, plan.recovery.on_nan))


class Guarded:
    """A ``SegmentedLearner`` whose gradients are checked; all other attributes are those of ``inner``.

    poisoned  the rounds into whose first gradient a fault of the Plan puts a NaN
    record    ``World.record``, set by the role; it records faults, and gradients that are left out
    round     the training round, set by the role; ``None``: every step is a round
    """

    def __init__(self, inner: SegmentedLearner, node: str, poisoned: set[int], on_nan: str) -> None:
        self.inner = inner
        self._node = node
        self._poisoned = poisoned
        self._on_nan = on_nan
        self.round: int | None = None
        self.record: Record = lambda kind, **fields: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def gradient(self, step: int) -> StepResult:
        result = self.inner.gradient(step)
        return StepResult(result.loss, result.samples, self.checked(step, result.gradients))

    def begin(self, step: int) -> SegmentedStep:
        return cast(SegmentedStep, _GuardedStep(self, step, self.inner.begin(step)))

    def checked(self, step: int, gradients: list[Tensor]) -> list[Tensor]:
        """Return the gradients, or zeros for all of them if any number is not finite.

        Raise ``Diverged`` if a number that is not finite ends the run.
        """
        round_ = step if self.round is None else self.round
        if round_ in self._poisoned and gradients:  # a segment may have no parameters
            self._poisoned.discard(round_)
            gradients[0].view(-1)[0] = math.nan
            self.record("fault", fault="nan", targets=self._node, begins=True)
        if self._on_nan == "ignore" or (found := first_not_finite(gradients)) is None:
            return gradients
        number, count = found
        what = f"non-finite gradient: {self._node}, step {step}, tensor {number}, {count} elements"
        end_or_leave_out(what, self._on_nan, self.record)
        return [torch.zeros_like(gradient) for gradient in gradients]


class _GuardedStep:
    """A step in segments.

    Scenarios that train in segments may not have ``on_nan: skip``: it would leave out one segment and keep the others.
    """

    def __init__(self, guard: Guarded, step: int, inner: SegmentedStep) -> None:
        self._guard = guard
        self._step = step
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def backward_segment(self, index: int) -> list[Tensor]:
        return self._guard.checked(self._step, self._inner.backward_segment(index))
