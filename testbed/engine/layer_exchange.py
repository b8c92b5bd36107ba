"""Parameter servers with overlap of computation and communication, layer by layer (P3).

A worker pushes a segment's gradients as soon as its backward pass is done. The segment's next forward pass begins as
soon as its own new values are here, even if other values are still in flight. All operations and their inputs are the
same as in ``ServerExchange``, so the results have the same bits; only the waiting is shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from testbed.engine.exchange import FinalScore, RoundDone
from testbed.engine.keys import KeyPush
from testbed.engine.local_work import LocalResult, copying
from testbed.engine.reply import merge_controls
from testbed.engine.server_exchange import ServerExchange, ServerParts
from testbed.plan.model import NodePlan, Plan
from testbed.plan.pace import step_shares
from testbed.training.learner import SegmentedStep
from testbed.training.shapes import ModelShape
from testbed.world import Work, World


@dataclass(slots=True)
class _OpenRound:
    """A round with values still to come. ``waited_s``: the longest wait at servers among the values that have come."""

    round: int
    started_s: float
    step: SegmentedStep
    over: Callable[[RoundDone], None]
    waited_s: float = 0.0


class LayerExchange(ServerExchange):
    """Pushes the gradient of one step; the optimizer is at the top tier. A round ends during the next one.

    Each segment takes a share of the step's time, by its floating-point operations; the shares add up to the step.
    """

    def __init__(self, world: World, plan: Plan, node: NodePlan, parts: ServerParts, shape: ModelShape) -> None:
        super().__init__(world, plan, node, parts)
        self._keys = shape.keys
        self._shares = step_shares(node, shape)
        self._before: _OpenRound | None = None  # the round whose values are on their way

    async def run(self, round_: int, over: Callable[[RoundDone], None]) -> None:
        current = _OpenRound(round_, self._world.now(), self._learner.begin(round_), over)
        await self._forward(current)
        if round_ < self.end:
            await self._note_target(round_)
            await self._backward(current)
            self._before = current

    async def settle(self) -> None:
        for segment in range(len(self._keys)):
            await self._take(segment)
        self._before = None

    async def finish(self, rounds: int) -> FinalScore:
        await self.settle()
        return await super().finish(rounds)

    async def _forward(self, current: _OpenRound) -> None:
        """Run each segment forward once its values are here, unless they say that the previous round was the last."""
        for segment, (share, _) in enumerate(self._shares):
            await self._take(segment)
            if current.round < self.end:
                work = Work("step", current.round, steps=share, part=f"forward {segment}")
                await self._world.compute(work, partial(current.step.forward_segment, segment))
        self._before = None

    async def _backward(self, current: _OpenRound) -> None:
        wanted = await self._wanted(current.round)
        for segment in reversed(range(len(self._keys))):
            work = Work("step", current.round, steps=self._shares[segment][1], part=f"backward {segment}")
            gradients = await self._world.compute(work, partial(current.step.backward_segment, segment))
            for key, gradient in zip(self._keys[segment], gradients, strict=True):
                notes = dict(self._notes) if key == 0 else {}
                # in a task: a full queue must hold up the sending of gradients, not their computation
                pushing = self._store.push(KeyPush(key, current.round, gradient, notes, wanted=wanted.get(key)))
                self._world.spawn(pushing, f"push key {key}")

    async def _take(self, segment: int) -> None:
        """Load a segment's values from the previous round. The last segment's values end that round."""
        before = self._before
        if before is None:
            return
        values = [await self._store.value(key, before.round) for key in self._keys[segment]]
        if values:
            tensors = [value.tensor for value in values]
            await self._world.compute(copying(tensors), partial(self._learner.load_segment, segment, tensors))
            control = merge_controls([value.control for value in values])
            before.waited_s = max(before.waited_s, control.waited_s)
            if control.last:
                self.end = before.round + 1
        if segment == len(self._keys) - 1:
            result = LocalResult({}, before.step.loss, before.step.samples, 1)
            before.over(RoundDone(before.round, before.started_s, result, before.waited_s))
