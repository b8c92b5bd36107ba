"""What a worker does between two synchronisations, and what it does with the values that come back.

Two kinds: one gradient (FSA, MixedSync, BSP, TAP, SSP), or local steps with an optimizer of its own (HFA, ESync,
DiLoCo). The optimizer of the former runs on the global server, or, if the scenario says so, on every worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from testbed.engine.loading.trainer import loaded
from testbed.policy.events import Contribution
from testbed.training.learner import Learner, State, StepResult
from testbed.training.optimizers import ModelOptimizer
from testbed.world import Work, World


@dataclass(frozen=True, slots=True)
class LocalResult:
    """Local work done: one flat tensor per key to push, mean loss and number of samples, steps done."""

    contributions: list[Tensor]
    loss: float
    samples: int
    steps: int


class LocalWork(Protocol):
    """``steps`` counts all local steps since the start: it is the position in the data."""

    steps: int

    def begin(self, values: list[Tensor]) -> None:
        """Everybody's first values."""

    async def run(self, world: World, round_: int, steps: int) -> LocalResult: ...

    def take(self, values: list[Tensor]) -> None:
        """The values of all keys after the round."""

    def state(self) -> State:
        """All that the next round depends on; the learner's own state is not in it."""

    def load_state(self, state: Mapping[str, Any]) -> None: ...


class OneGradient:
    """Push the gradient of one step; what comes back are the new values."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.steps = 0

    async def run(self, world: World, round_: int, steps: int) -> LocalResult:
        assert steps == 1, "a gradient is of one step"
        result = await one_step(self._learner, world, round_, self.steps)
        self.steps += 1
        return LocalResult(result.gradients, result.loss, result.samples, 1)

    def begin(self, values: list[Tensor]) -> None:
        self._learner.load(values)

    def take(self, values: list[Tensor]) -> None:
        self._learner.load(values)

    def state(self) -> State:
        return {"steps": self.steps}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.steps = int(state["steps"])


class LocalOptimizerWork(OneGradient):
    """Push the gradient; what comes back is the sum over ``workers`` gradients, for this worker's own optimizer."""

    def __init__(self, learner: Learner, optimizer: ModelOptimizer, workers: int) -> None:
        super().__init__(learner)
        self._optimizer, self._workers = optimizer, workers

    def take(self, values: list[Tensor]) -> None:
        self._optimizer.step([total / self._workers for total in values])
        self._learner.load(self._optimizer.values())

    def begin(self, values: list[Tensor]) -> None:
        self._optimizer.load(values)
        self._learner.load(values)

    def state(self) -> State:
        return {"steps": self.steps, **self._optimizer.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.steps = int(state["steps"])
        self._optimizer.load_state(state)


class LocalSteps:
    """Train alone for some steps, then push the model, or how far it has moved, times this worker's ``weight``."""

    def __init__(self, learner: Learner, optimizer: ModelOptimizer, contribution: Contribution, weight: float) -> None:
        self._learner, self._optimizer = learner, optimizer
        self._contribution, self._weight = contribution, weight
        self.steps = 0

    async def run(self, world: World, round_: int, steps: int) -> LocalResult:
        before = self._learner.values()
        results = [await self._step(world, round_) for _ in range(steps)]
        samples = sum(result.samples for result in results)
        loss = sum(result.loss * result.samples for result in results) / samples
        return LocalResult(self._contributions(before), loss, samples, steps)

    async def _step(self, world: World, round_: int) -> StepResult:
        result = await one_step(self._learner, world, round_, self.steps)
        self.steps += 1
        self._optimizer.step(result.gradients)
        self._learner.load(self._optimizer.values())
        return result

    def _contributions(self, before: list[Tensor]) -> list[Tensor]:
        after = self._optimizer.values()
        if self._contribution is Contribution.MODEL:
            return [value * self._weight for value in after]
        return [(old - new) * self._weight for old, new in zip(before, after, strict=True)]

    def take(self, values: list[Tensor]) -> None:
        self._optimizer.load(values)
        self._learner.load(values)

    def begin(self, values: list[Tensor]) -> None:
        self.take(values)

    def state(self) -> State:
        return {"steps": self.steps, **self._optimizer.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.steps = int(state["steps"])
        self._optimizer.load_state(state)


async def one_step(learner: Learner, world: World, round_: int, step: int) -> StepResult:
    """One paced training step of a worker, when its batch is there."""
    await loaded(learner, step, round_)
    return await world.compute(Work("step", round_), lambda: learner.gradient(step))
