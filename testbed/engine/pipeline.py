"""The worker that overlaps computation with communication, layer by layer.

A segment's gradients are pushed when its backward pass is done, and its next forward pass begins when its own new
values are here, whatever others are still in flight. The same operations happen at the same values as in ``Worker``,
so the same bits come out; only the waiting is shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from testbed.engine.learner import step_shares
from testbed.engine.local_work import copying
from testbed.engine.reply import merge_controls
from testbed.engine.worker import Worker, WorkerParts
from testbed.plan.model import NodePlan, Plan
from testbed.training.learner import SegmentedStep
from testbed.training.shapes import ModelShape
from testbed.world import Work, World


@dataclass(slots=True)
class _PipelinedRound:
    """A round whose values are not all here. ``waited_s`` and ``last`` are those of the values that are."""

    round: int
    started_s: float
    step: SegmentedStep
    waited_s: float = 0.0
    last: bool = False


class PipelinedWorker(Worker):
    """A worker that pushes the gradient of one step; the optimizer stands at the top tier.

    Segments take shares of the step's time, by floating-point operations; together exactly the step's time.
    """

    def __init__(self, world: World, plan: Plan, node: NodePlan, parts: WorkerParts, shape: ModelShape) -> None:
        super().__init__(world, plan, node, parts)
        self._keys, self._shares = shape.keys, step_shares(node, shape)

    async def _train(self) -> int:
        before: _PipelinedRound | None = None
        first_control = self._store.first_control
        first = max(self._checkpointer.first_round, first_control.begin)
        last_round = first - 1
        while last_round + 1 < self._rounds and not first_control.last:
            round_ = last_round + 1
            current = _PipelinedRound(round_, self._world.now(), self._learner.begin(round_))
            await self._forward(current, before)
            if before is not None and before.last:
                break
            self._evaluation.without(self._membership.lost)
            if await self._evaluation.before_push(round_):
                self._notes["last"] = True
            await self._backward(current)
            before, last_round = current, round_
            leaving = self._departure.due(round_)
            if leaving or self._checkpointer.due(round_):
                await self._take_all(before)
                if before.last:
                    break
                before = None
                if leaving:
                    self.leaves = True
                    break
                await self._checkpointer.save(round_, self._state)
        if before is not None and not before.last:
            await self._take_all(before)
        await self._score_final(last_round)
        return last_round + 1

    async def _take_all(self, before: _PipelinedRound) -> None:
        for segment in range(len(self._keys)):
            await self._take(segment, before)

    async def _forward(self, current: _PipelinedRound, before: _PipelinedRound | None) -> None:
        """Run all segments, each when its values are here; none once they say that the round before was the last."""
        for segment, (share, _) in enumerate(self._shares):
            if before is not None:
                await self._take(segment, before)
            if before is None or not before.last:
                work = Work("step", current.round, steps=share, part=f"forward {segment}")
                await self._world.compute(work, partial(current.step.forward_segment, segment))

    async def _backward(self, current: _PipelinedRound) -> None:
        wanted = await self._wanted(current.round)
        for segment in reversed(range(len(self._keys))):
            work = Work("step", current.round, steps=self._shares[segment][1], part=f"backward {segment}")
            gradients = await self._world.compute(work, partial(current.step.backward_segment, segment))
            for key, gradient in zip(self._keys[segment], gradients, strict=True):
                notes = dict(self._notes) if key == 0 else None
                # in a task: a full queue must hold up the sending of gradients, not their computation
                pushing = self._store.push(key, current.round, gradient, notes, wanted=wanted.get(key))
                self._world.spawn(pushing, f"push key {key}")

    async def _take(self, segment: int, before: _PipelinedRound) -> None:
        """Load a segment's values after ``before``; with those of the last segment that round is over."""
        values = [await self._store.value(key, before.round) for key in self._keys[segment]]
        if values:
            tensors = [value.tensor for value in values]
            await self._world.compute(copying(tensors), partial(self._learner.load_segment, segment, tensors))
            control = merge_controls([value.control for value in values])
            before.waited_s = max(before.waited_s, control.waited_s)
            before.last = before.last or control.last
        if segment == len(self._keys) - 1:
            self._world.record(
                "round", t0=before.started_s, round=before.round, loss=before.step.loss, samples=before.step.samples,
                steps=1, waited_s=round(before.waited_s, 6),
            )  # fmt: skip
            self._evaluation.after_round(before.round)
