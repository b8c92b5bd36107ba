"""The score of a model whose parameters lie in several stages.

The stages of the first replica send their values to its first worker, which scores them together. If replicas gossip,
the stages send the means over all replicas. Like every evaluation, this is outside the timed path. If the target is
reached, the activations of the round say so, so that the same round is the last at all stages. The other replicas hear
of it as workers of their paradigm do.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from testbed.engine.evaluation import Evaluation
from testbed.engine.inbox import Inbox
from testbed.messages import Message, MessageKind
from testbed.plan.model import Plan
from testbed.plan.stages import replicas_of
from testbed.results.events import EVALUATING
from testbed.state import State
from testbed.training.learner import Learner
from testbed.world import Future, World


class StageEvaluation(Evaluation):
    """One stage's part in the evaluation.

    places  at the worker that scores: by stage, the positions of the values of its keys in the whole model
    ends    whether the present round is known to be the last
    """

    def __init__(
        self,
        world: World,
        plan: Plan,
        learner: Learner,
        inbox: Inbox,
        replica: Sequence[str],
        places: Sequence[Sequence[int]],
    ) -> None:
        """``replica``: the workers of this worker's replica, by stage."""
        super().__init__(world, plan, learner)
        self._learner_of_stage = learner
        first = replicas_of(plan)[0]
        self._is_first = world.node == first[0]
        self._gives = world.node in first
        self._replica = tuple(replica)
        self._places = places
        self._came: dict[tuple[int, str], Future[tuple[Tensor, ...]]] = {}  # by round and worker
        self._gathering: Future[None] | None = None
        self._asked = -1
        self.ends = False
        inbox.on(MessageKind.SNAPSHOT, self._on_values)

    def done_by(self, worker: str) -> None:
        pass  # the first worker always scores, because a run that loses a worker begins again

    async def begin_round(self, round_: int) -> None:
        """Find out, at the first step of a round, whether it is the last."""
        if self._asked == round_:
            return
        self._asked = round_
        self.ends = False
        if self.decide is not None:
            self.ends = await super().decided(round_)
        elif self.active:
            await self._gathered(round_)
            self.ends = await super().before_push(round_)

    async def decided(self, round_: int) -> bool:
        return self.ends

    async def before_push(self, round_: int) -> bool:
        return self.ends

    def after_round(self, round_: int) -> None:
        if self._every_rounds(round_):
            self._share(round_, self._learner_of_stage.values(), self._world.now())

    async def score(self, round_: int, values: list[Tensor], time_s: float) -> None:
        """Send this stage's part of the mean of gossiping models to the first worker."""
        self._share(round_, values, time_s)
        if self.active:
            await self._wait()
            await self._scores.collect()

    async def finish(self, round_: int, *, changed: bool = False) -> None:
        if changed or not self._every_rounds(round_):
            if self.active:
                await self._wait()
                await self._scores.collect()
            self._share(round_, self._learner_of_stage.values(), self._world.now())
        if self.active:
            await self._wait()
            await self._scores.collect()

    async def state(self) -> State:
        await self._wait()
        return await super().state()

    def _every_rounds(self, round_: int) -> bool:
        return round_ % self._every == self._every - 1

    async def _gathered(self, round_: int) -> None:
        if self.due(round_):
            await self._wait()

    async def _wait(self) -> None:
        if self._gathering is not None:
            await self._world.wait(self._gathering, EVALUATING)

    def _share(self, round_: int, mine: list[Tensor], time_s: float) -> None:
        """Send this stage's values after ``round_`` to the first worker, which then scores those of all stages."""
        if self.active:
            self._gathering = self._world.spawn(self._gather(round_, mine, time_s), "gather the stages' values")
        elif self._gives:
            message = Message(MessageKind.SNAPSHOT, 0, round_, parts=tuple(mine))
            self._world.spawn(self._world.send_aside(self._replica[0], message), "give values to be scored")

    async def _gather(self, round_: int, mine: list[Tensor], time_s: float) -> None:
        values: dict[int, Tensor] = dict(zip(self._places[0], mine, strict=True))
        for name, places in list(zip(self._replica, self._places, strict=True))[1:]:
            theirs = await self._world.wait(self._values_of(round_, name), f"the values of {name}, to be scored")
            del self._came[round_, name]
            values.update(zip(places, theirs, strict=True))
        self.take(round_, [values[key] for key in sorted(values)], time_s)

    def _values_of(self, round_: int, worker: str) -> Future[tuple[Tensor, ...]]:
        if (round_, worker) not in self._came:
            self._came[round_, worker] = self._world.future()
        return self._came[round_, worker]

    def _on_values(self, message: Message) -> None:
        self._values_of(message.round, message.sender).set_result(message.parts)
