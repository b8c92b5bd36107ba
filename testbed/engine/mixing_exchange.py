"""Users' own paradigms: a user's class decides when and how workers mix their models; the engine does the rest.

Workers train alone between two mixing rounds. As soon as a mixing round is over at one worker, it counts as over for
all. If a worker is lost or joins before that, the workers that take part mix again, with the models that they had. A
joining worker begins after the last mixing round, with the model that another worker had then. The last round always
mixes, and ends with the mean of all models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from testbed.engine import sync_setup
from testbed.engine.checkpoint import in_main_memory
from testbed.engine.collectives.collectives import Collectives
from testbed.engine.exchange import FinalScore, RoundDone
from testbed.engine.gossip.model import OwnModel
from testbed.engine.local_kinds import serverless_work
from testbed.engine.membership import MembershipChanged
from testbed.engine.serverless import FIRST_VALUES_BYTES, Buckets, PlaceInRun, ServerlessExchange
from testbed.paradigms import PARADIGMS, OwnParadigm
from testbed.plan.model import NodePlan, Plan
from testbed.policy.shard.slices import buckets_of
from testbed.state import State
from testbed.training.learner import SegmentedLearner


def mixing_exchange(
    plan: Plan, node: NodePlan, learner: SegmentedLearner
) -> Callable[[PlaceInRun], ServerlessExchange]:
    """Return the function that makes the exchange of the worker ``node`` in a run with a user's own paradigm."""
    buckets = buckets_of(learner.sizes, FIRST_VALUES_BYTES)
    choice = plan.technique.paradigm
    paradigm = PARADIGMS.options(choice.kind, choice.options)
    assert isinstance(paradigm, OwnParadigm), "the axis takes no other class"

    def make_exchange(place: PlaceInRun) -> MixingExchange:
        return MixingExchange(place, plan, learner, buckets, paradigm)

    return make_exchange


class MixingExchange(ServerlessExchange):
    """One worker's exchange. ``Peers.progress`` is the last round that was mixed."""

    def __init__(
        self, place: PlaceInRun, plan: Plan, learner: SegmentedLearner, buckets: Buckets, paradigm: OwnParadigm
    ) -> None:
        super().__init__(place, plan, learner, buckets)
        self._paradigm = paradigm
        self._local_steps = sync_setup.local_steps(plan)
        self.end: float = plan.training.rounds

    async def prepare(self, values: list[Tensor]) -> None:
        work = serverless_work(self._plan, self._learner, values)
        self._model = OwnModel(self._world, self._plan, self._learner, work, values, factor=1.0)
        self._mixed = self._model.state()  # the state after the last mixing round, for joining workers
        self._workers = self._those_who_mix()
        self._peers.states.provide = self._provide

    def _those_who_mix(self) -> Collectives:
        return Collectives(self._world, self._mail, self._peers.names, name="mixing")

    async def run(self, round_: int, over: Callable[[RoundDone], None]) -> None:
        started_s = self._world.now()
        result = await self._model.work(round_, self._local_steps(round_))
        await self._model.step(round_, result)
        reached = await self.evaluation.before_push(round_)
        is_last = round_ + 1 == self._plan.training.rounds
        if is_last or self._paradigm.mixes(round_):
            await self._mix(round_, self._model.flat, ends=is_last or reached)
        self._model.show(self._model.flat)
        over(RoundDone(round_, started_s, result))

    async def _mix(self, round_: int, mine: Tensor, *, ends: bool) -> None:
        """Mix the model ``mine`` with the others' models. ``ends``: whether this worker knows that the run ends."""
        while self._peers.progress is not None and self._peers.progress < round_:
            try:
                mixed, all_end = await self._mixed_with_others(round_, mine, ends)
            except MembershipChanged:
                await self.agree()  # may take over the state of a worker that has finished this mixing round
                continue
            if not self.grouped:
                await self.agree()
                continue
            self._peers.progress = round_
            self._model.set(mixed)
            self._mixed = self._model.state()
            if all_end:
                self.end = round_ + 1

    async def _mixed_with_others(self, round_: int, mine: Tensor, ends: bool) -> tuple[Tensor, bool]:
        workers = self._workers
        workers.round = round_
        mixed = await self._paradigm.mix(round_, mine, workers)
        _, all_end = await workers.all_reduce_flagged(torch.zeros(1), ends)
        if all_end:
            mixed = await workers.all_reduce(mixed) / workers.size
        return mixed, all_end

    async def finish(self, rounds: int) -> FinalScore:
        return FinalScore(rounds - 1, changed=False)

    def state(self) -> State:
        return self._model.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._model.load_state(state)
        self._mixed = self._model.state()

    # ---- changes of the membership ------------------------------------------------------------------------------

    async def regroup(self) -> None:
        self._workers = self._those_who_mix()

    async def take_place(self, state: State, round_: int) -> None:
        ends = bool(state.pop("ends"))
        self._peers.progress = round_
        self._model.load_state(state)
        self._mixed = state
        if ends:
            self.end = round_ + 1

    async def _provide(self) -> State:
        ended = self._peers.progress is not None and self._peers.progress + 1 >= self.end
        return in_main_memory(self._mixed) | {"ends": int(ended)}
