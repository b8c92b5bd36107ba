"""What a worker does between two synchronisations, and what it does with the values that come back.

Two kinds: the gradient of one step (FSA, MixedSync, BSP, TAP, SSP), or local steps with an optimizer of the worker's
own (HFA, ESync, DiLoCo). The optimizer for gradients stands at the global server or, if the scenario says so, at every
worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from testbed import buffers
from testbed.costs import Cost
from testbed.engine.loading import loading_of
from testbed.policy.events import Contribution
from testbed.state import Remembering
from testbed.training.learner import Learner, StepResult
from testbed.training.optimizers import ModelOptimizer
from testbed.world import Work, World

_MOMENTS = {"first": ("/exp_avg", "/momentum_buffer"), "second": ("/exp_avg_sq",)}  # as PyTorch calls them


@dataclass(frozen=True, slots=True)
class LocalResult:
    """Local work done: the flat tensors to push by key, mean loss, number of samples, number of steps.

    Loss and samples are ``None`` in a script, which does not report them, and the loss at a stage that does not see it.
    """

    contributions: dict[int, Tensor]
    loss: float | None
    samples: int | None
    steps: int


class OwnStep(Remembering):
    """How a worker makes a training step: by itself."""

    async def __call__(self, learner: Learner, world: World, round_: int, step: int) -> StepResult:
        """Return what has come of step number ``step`` of this worker, at its model's current values."""
        await load_batch(learner, step, round_)
        return await world.compute(Work("step", round_), lambda: learner.gradient(step))


class LocalWork(Remembering, ABC):
    """``steps`` counts all local steps since the start: it is the position in the data.

    make_step  makes each of them
    is_late  whether new values are awaited during later rounds, by ``take_pending``, not at the end of their own
    pending  each awaits and takes what the exchange of a round has made, in their order; empty: nothing is on its way
    staleness  of how many rounds values may be on their way when the next one begins
    since    the values from which local steps have moved the model; ``None``: those at the beginning of the round
    """

    remembers: ClassVar[tuple[str, ...]] = ("steps", "_optimizer", "make_step")
    is_late = False
    staleness = 0
    since: list[Tensor] | None = None

    def __init__(self, learner: Learner, optimizer: ModelOptimizer | None = None) -> None:
        self._learner = learner
        self._optimizer = optimizer
        self.make_step = OwnStep()
        self.steps = 0
        self.pending: deque[Callable[[], Awaitable[None]]] = deque()

    async def begin(self, world: World, values: list[Tensor]) -> None:
        """Load the first values, equal at all workers."""
        work = copying(values if self._optimizer is None else [*values, *values])  # the optimizer copies them, too
        await world.compute(work, lambda: self.load(values))

    def begin_at(self, steps: int) -> None:
        """Take the place, in the data and in the optimizer's schedule, of a worker that has made so many steps."""
        self.steps = steps
        if self._optimizer is not None:
            self._optimizer.begin_at(steps)

    def load(self, values: list[Tensor]) -> None:
        """Continue with these values; an optimizer keeps momentum and moments."""
        if self._optimizer is not None:
            self._optimizer.load(values)
        self._learner.load(values)

    @abstractmethod
    async def run(self, world: World, round_: int, steps: int) -> LocalResult:
        """Do the local work of a round, ``steps`` steps."""

    @abstractmethod
    async def take(self, world: World, round_: int, values: Mapping[int, Tensor]) -> None:
        """Take what the servers answered in a round, by key, in the order of keys."""

    def moments(self, which: str) -> dict[int, Tensor]:
        """Return this worker's share of the mean of its optimizer's ``first`` or ``second`` moments, by key."""
        raise NotImplementedError("without local steps there is no optimizer here")

    def take_moments(self, which: str, values: Mapping[int, Tensor]) -> None:
        """Go on with these moments, by key."""
        raise NotImplementedError("without local steps there is no optimizer here")

    async def take_pending(self) -> None:
        """Take what is on its way, if anything is."""
        while self.pending:
            await self.pending.popleft()()

    async def catch_up(self, world: World) -> None:
        """Take what has to be here before the next round begins."""

    async def receive_pending(self) -> None:
        """Receive what is on its way, so that nothing is at a checkpoint, and take it when it would have been taken."""
        await self.take_pending()

    async def finish(self, world: World) -> bool:
        """End training: take what is still on its way. Return whether the model has changed since its last round."""
        return False


class OneGradient(LocalWork):
    """Push the gradient of one step; the answer is the new values."""

    async def run(self, world: World, round_: int, steps: int) -> LocalResult:
        assert steps == 1, "a gradient is of one step"
        result = await self.make_step(self._learner, world, round_, self.steps)
        self.steps += 1
        return joined_result(dict(enumerate(result.gradients)), [result])

    async def take(self, world: World, round_: int, values: Mapping[int, Tensor]) -> None:
        new = list(values.values())
        await world.compute(copying(new), lambda: self._learner.load(new))


class LocalOptimizerWork(OneGradient):
    """Push the gradient; the answer is the sum over ``workers`` gradients, for this worker's own optimizer."""

    _optimizer: ModelOptimizer

    def __init__(self, learner: Learner, optimizer: ModelOptimizer, workers: int) -> None:
        super().__init__(learner, optimizer)
        self._workers = workers

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._learner.load(self._optimizer.values())

    async def take(self, world: World, round_: int, values: Mapping[int, Tensor]) -> None:
        def step() -> None:
            self._optimizer.step([buffers.computed(torch.div, total, self._workers) for total in values.values()])
            self._learner.load(self._optimizer.values())

        await world.compute(optimizer_work(self._optimizer.keys, round_), step)


class LocalSteps(LocalWork):
    """Train alone for some steps, then push the model, or how far it has moved, times this worker's ``weight``."""

    _optimizer: ModelOptimizer

    def __init__(self, learner: Learner, optimizer: ModelOptimizer, contribution: Contribution, weight: float) -> None:
        super().__init__(learner, optimizer)
        self._contribution = contribution
        self._weight = weight

    async def run(self, world: World, round_: int, steps: int) -> LocalResult:
        before = self._optimizer.values() if self._contribution is Contribution.MODEL else self.since
        if before is None:
            before = await world.compute(copying(self._optimizer.values()), self._learner.values)
        results = [await self._step(world, round_) for _ in range(steps)]
        contributions = await world.compute(copying(before), lambda: self._contributions(before))
        return joined_result(dict(enumerate(contributions)), results)

    async def _step(self, world: World, round_: int) -> StepResult:
        result = await self.make_step(self._learner, world, round_, self.steps)
        self.steps += 1

        def step() -> None:
            self._optimizer.step(result.gradients)
            self._learner.load(self._optimizer.values())

        await world.compute(optimizer_work(self._optimizer.keys, round_), step)
        return result

    def _contributions(self, before: list[Tensor]) -> list[Tensor]:
        after = self._optimizer.values()
        if self._contribution is Contribution.MODEL:
            return [buffers.computed(torch.mul, value, self._weight) for value in after]
        return [
            buffers.computed(torch.sub, old, new).mul_(self._weight) for old, new in zip(before, after, strict=True)
        ]

    async def take(self, world: World, round_: int, values: Mapping[int, Tensor]) -> None:
        await self.begin(world, list(values.values()))

    def moments(self, which: str) -> dict[int, Tensor]:
        state = self._optimizer.state()
        found = {_key_of(name): torch.as_tensor(state[name]) for name in state if name.endswith(_MOMENTS[which])}
        return {key: found[key] * self._weight for key in sorted(found)}

    def take_moments(self, which: str, values: Mapping[int, Tensor]) -> None:
        state = self._optimizer.state()
        names = [name for name in state if name.endswith(_MOMENTS[which])]
        # others may hold the same memory, and an optimizer changes its moments in place
        self._optimizer.load_state(state | {name: values[_key_of(name)].clone() for name in names})


def _key_of(name: str) -> int:
    """Return the key of a part of an optimizer's state, whose name begins with it."""
    return int(name.partition("/")[0])


def joined_result(contributions: dict[int, Tensor], results: Sequence[StepResult]) -> LocalResult:
    samples = sum(result.samples for result in results)
    if len(results) == 1 and samples:
        return LocalResult(contributions, results[0].loss, samples, 1)
    # a stage of a pipeline that is not the last sees no loss, and counts no samples
    loss = sum(result.loss * result.samples for result in results) / samples if samples else None
    return LocalResult(contributions, loss, samples, len(results))


def copying(tensors: Sequence[Tensor]) -> Work:
    return Work("copy", size_bytes=sum(tensor.nbytes for tensor in tensors))


class Stepped(Protocol):
    """One key's value and what makes its steps; ``cost``: ``None`` if nothing is computed."""

    value: Tensor
    cost: Cost | None


def optimizer_work(keys: Sequence[Stepped], round_: int, elements: int | None = None) -> Work:
    """Return the work of one optimizer step of these keys, which have one kind of optimizer.

    ``elements``: as long as a step of so many takes, where it is of other elements than all of these, or a part of it.
    """
    cost = keys[0].cost if keys else None
    if elements is None:
        elements = sum(key.value.numel() for key in keys)
    if cost is None:
        return Work("copy", round_)  # of nothing: the aggregate itself is the new value
    # Adam, the largest, reads and writes gradient, value and two moments
    return Work("optimizer", round_, size_bytes=4 * 4 * elements, cost=cost, elements=elements)


async def load_batch(learner: Learner, step: int, round_: int) -> None:
    loading = loading_of(learner)
    if loading is not None:
        await loading.prepare(step, round_)
