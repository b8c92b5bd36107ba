"""The worker that overlaps computation with communication, layer by layer.

A segment's gradients are pushed when its backward pass is done, and its next forward pass begins when its own new
values are here, whatever others are still on their way. The same operations happen at the same values as in
``Worker``, so the same bits come out; only the waiting is shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from testbed.engine.evaluation import Evaluation
from testbed.engine.kvworker import KVWorker, merged
from testbed.engine.local_work import LocalWork
from testbed.engine.worker import Worker
from testbed.plan.model import NodePlan, Plan
from testbed.training.learner import SegmentedLearner, SegmentedStep
from testbed.training.shapes import ModelShape
from testbed.world import Work, World

T = TypeVar("T")


@dataclass(slots=True)
class _PipelinedRound:
    """A round whose values are not all here yet. ``waited_s``, ``last``: as told by those that are."""

    round: int
    started_s: float
    step: SegmentedStep
    waited_s: float = 0.0
    last: bool = False


class PipelinedWorker(Worker):
    """A worker that pushes the gradient of one step; the optimizer stands at the top tier.

    Segments take shares of the step's time, by floating-point operations; together exactly the step's time.
    """

    def __init__(
        self, plan: Plan, node: NodePlan, store: KVWorker, learner: SegmentedLearner, work: LocalWork, shape: ModelShape
    ) -> None:
        super().__init__(plan, node, store, learner, work)
        self._segmented, self._keys, self._shares = learner, shape.keys, shape.time_shares()

    async def _train(self, world: World) -> int:
        evaluation = self._begin_training(world)
        before: _PipelinedRound | None = None
        for round_ in range(self._plan.training.rounds):
            now = _PipelinedRound(round_, world.now(), self._segmented.begin(round_))
            await self._forward(world, now, before, evaluation)
            if before is not None and before.last:
                break
            if evaluation and await evaluation.before_push(round_):
                self._notes["last"] = True
            await self._backward(world, now)
            before = now
        assert before is not None
        if not before.last:
            for segment in range(len(self._keys)):
                await self._take(world, segment, before, evaluation)
        if evaluation:
            await evaluation.finish(before.round)
        return before.round + 1

    async def _forward(
        self, world: World, now: _PipelinedRound, before: _PipelinedRound | None, evaluation: Evaluation | None
    ) -> None:
        """All segments, each when its values are in. If those say that the round before was the last, none is run."""
        for segment, (share, _) in enumerate(self._shares):
            if before is not None:
                await self._take(world, segment, before, evaluation)
            if before is None or not before.last:
                await _part(world, now, share, f"forward {segment}", partial(now.step.forward_segment, segment))

    async def _backward(self, world: World, now: _PipelinedRound) -> None:
        for segment in reversed(range(len(self._keys))):
            share = self._shares[segment][1]
            gradients = await _part(
                world, now, share, f"backward {segment}", partial(now.step.backward_segment, segment)
            )
            for key, gradient in zip(self._keys[segment], gradients, strict=True):
                notes = dict(self._notes) if key == 0 else None
                # beside: a full queue must hold up the sending of gradients, not their making
                world.spawn(self._store.push(key, now.round, gradient, notes), f"push key {key}")

    async def _take(self, world: World, segment: int, before: _PipelinedRound, evaluation: Evaluation | None) -> None:
        """A segment's values after ``before``; with those of the last segment that round is over."""
        values = [await self._store.value(key, before.round) for key in self._keys[segment]]
        if values:
            self._segmented.load_segment(segment, [value.tensor for value in values])
            advice = merged([value.advice for value in values])
            before.waited_s = max(before.waited_s, advice.waited_s)
            before.last = before.last or advice.last
        if segment == len(self._keys) - 1:
            self._end_of_round(world, before, evaluation)

    def _end_of_round(self, world: World, before: _PipelinedRound, evaluation: Evaluation | None) -> None:
        world.record(
            "round", t0=before.started_s, round=before.round, loss=before.step.loss, samples=before.step.samples,
            steps=1, waited_s=round(before.waited_s, 6),
        )  # fmt: skip
        if evaluation:
            evaluation.after_round(before.round)


async def _part(world: World, now: _PipelinedRound, share: float, name: str, function: Callable[[], T]) -> T:
    """A share of a paced training step."""
    return await world.compute(Work("step", now.round, steps=share, part=name), function)
