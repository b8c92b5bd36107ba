"""A worker's local work: it trains between two synchronisations, and takes the values that come back.

There are two kinds: the gradient of one step (FSA, MixedSync, BSP, TAP, SSP), or several local steps with the worker's
own optimizer (HFA, ESync, DiLoCo). The optimizer for gradients is at the global server or, if the scenario says so, at
every worker.
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
    """The result of a round's local work: by key the flat tensors to push, mean loss, number of samples and of steps.

    A script does not report loss and samples: both are ``None``. At a pipeline stage that does not see the loss, the
    loss is ``None``.
    """

    contributions: dict[int, Tensor]
    loss: float | None
    samples: int | None
    steps: int


class OwnStep(Remembering):
    """Makes a training step at one worker alone (in a pipeline, several workers make a step together)."""

    async def __call__(self, learner: Learner, world: World, round_: int, step: int) -> StepResult:
        """Compute step number ``step`` of this worker at its model's current values, and return the result."""
        await load_batch(learner, step, round_)
        return await world.compute(Work("step", round_), lambda: learner.gradient(step))


class LocalWork(Remembering, ABC):
    """A worker's local work.

    steps      all local steps since the start; this is the worker's position in the data
    make_step  makes one training step
    is_late    whether the worker takes a round's new values during later rounds, not at the end of the round
    pending    one function for each round whose values are on their way, in order; it waits for them and takes them
    staleness  for how many rounds values may be on their way when the next round begins
    since      the values from which the round's change of the model is measured; ``None``: the round's first values
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
        work = copying(values if self._optimizer is None else [*values, *values])  # the optimizer makes a copy, too
        await world.compute(work, lambda: self.load(values))

    def begin_at(self, steps: int) -> None:
        """Set the position in the data and in the optimizer's schedule to that after ``steps`` steps."""
        self.steps = steps
        if self._optimizer is not None:
            self._optimizer.begin_at(steps)

    def load(self, values: list[Tensor]) -> None:
        """Continue with these values; the optimizer keeps its momentum and moments."""
        if self._optimizer is not None:
            self._optimizer.load(values)
        self._learner.load(values)

    @abstractmethod
    async def run(self, world: World, round_: int, steps: int) -> LocalResult:
        """Do the local work of a round: ``steps`` steps."""

    @abstractmethod
    async def take(self, world: World, round_: int, values: Mapping[int, Tensor]) -> None:
        """Take the values that came back in a round, by key, in the order of keys."""

    def moments(self, which: str) -> dict[int, Tensor]:
        """Return, by key, this worker's weighted contribution to the mean of the optimizers' moments.

        ``which``: ``first`` or ``second`` moments
        """
        raise NotImplementedError("without local steps there is no optimizer here")

    def take_moments(self, which: str, values: Mapping[int, Tensor]) -> None:
        """Replace the optimizer's moments by ``values``, by key."""
        raise NotImplementedError("without local steps there is no optimizer here")

    async def take_pending(self) -> None:
        """Wait for all values that are on their way, and take them."""
        while self.pending:
            await self.pending.popleft()()

    async def catch_up(self, world: World) -> None:
        """Take the values that the worker must have before the next round begins."""

    async def receive_pending(self) -> None:
        """Receive all values on their way before a checkpoint; take them at the same time as without a checkpoint."""
        await self.take_pending()

    async def finish(self, world: World) -> bool:
        """End training: take the values still on their way. Return whether the model changed after its last round."""
        return False


class OneGradient(LocalWork):
    """Pushes the gradient of one step; the reply brings the new values."""

    async def run(self, world: World, round_: int, steps: int) -> LocalResult:
        assert steps == 1, "a gradient is of one step"
        result = await self.make_step(self._learner, world, round_, self.steps)
        self.steps += 1
        return joined_result(dict(enumerate(result.gradients)), [result])

    async def take(self, world: World, round_: int, values: Mapping[int, Tensor]) -> None:
        new = list(values.values())
        await world.compute(copying(new), lambda: self._learner.load(new))


class LocalOptimizerWork(OneGradient):
    """Pushes the gradient; the reply is the sum of ``workers`` gradients, along which the worker's optimizer steps."""

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
    """Trains alone for some steps, then pushes the model, or its change, times this worker's ``weight``."""

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
        # clone: others may hold the same memory, and an optimizer changes its moments in place
        self._optimizer.load_state(state | {name: values[_key_of(name)].clone() for name in names})


def _key_of(name: str) -> int:
    """Return the key with which the name of an entry of an optimizer's state begins."""
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
    """One key's value, and the cost of a step of its optimizer; ``None`` if a step computes nothing."""

    value: Tensor
    cost: Cost | None


def optimizer_work(keys: Sequence[Stepped], round_: int, elements: int | None = None) -> Work:
    """Return the work of one optimizer step of these keys, which all have the same kind of optimizer.

    ``elements``: the number of elements that the step computes; by default all elements of the keys
    """
    cost = keys[0].cost if keys else None
    if elements is None:
        elements = sum(key.value.numel() for key in keys)
    if cost is None:
        return Work("copy", round_)  # of zero bytes: the aggregate itself is the new value
    # Adam, the largest, reads and writes gradient, value and two moments
    return Work("optimizer", round_, size_bytes=4 * 4 * elements, cost=cost, elements=elements)


async def load_batch(learner: Learner, step: int, round_: int) -> None:
    loading = loading_of(learner)
    if loading is not None:
        await loading.prepare(step, round_)
