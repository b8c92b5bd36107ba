"""The exchange of workers that gossip: each has a model of its own, and mixes it with those of neighbours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from torch import Tensor

from testbed.engine import sync_setup
from testbed.engine.exchange import FinalScore, RoundDone
from testbed.engine.gossip.algorithm import GossipAlgorithm, GossipParts
from testbed.engine.gossip.final_model import FinalModel
from testbed.engine.gossip.mean import MeanModel
from testbed.engine.gossip.model import GossipMail, OwnModel
from testbed.engine.local_kinds import serverless_work
from testbed.engine.serverless import Buckets, PlaceInRun, ServerlessExchange
from testbed.plan.model import Plan
from testbed.state import State
from testbed.training.learner import SegmentedLearner
from testbed.world import World


class GossipExchange(ServerlessExchange):
    """Leads an algorithm of gossip. When the last round is over, all models are averaged, so that a run ends with one.

    How far the models are from their mean is recorded whenever the mean is scored. ``make_gossip`` makes the algorithm;
    a step of this worker counts for ``factor`` (``OwnModel``).
    """

    remembers = ("_gossip",)
    _gossip: GossipAlgorithm

    def __init__(
        self,
        place: PlaceInRun,
        plan: Plan,
        learner: SegmentedLearner,
        buckets: Buckets,
        make_gossip: Callable[[World, GossipParts], GossipAlgorithm],
        factor: float,
    ) -> None:
        super().__init__(place, plan, learner, buckets)
        self._make_gossip = make_gossip
        self._factor = factor

    async def prepare(self, values: list[Tensor]) -> None:
        work = serverless_work(self._plan, self._learner, values)
        if self._place.own is not None:
            work.make_step = self._place.own.make_step
        self._model = OwnModel(self._world, self._plan, self._learner, work, values, self._factor)
        mail = GossipMail(self._world, self._session.inbox, self._peers)
        self._mean = MeanModel(self._world, mail, self._learner.sizes, self.evaluation)
        parts = GossipParts(mail, self._model, self._mean, self.evaluation)
        self._gossip = self._make_gossip(self._world, parts)
        self._final = FinalModel(self._place, self._learner, self._gossip)

    @property
    def end(self) -> float:  # type: ignore[override]
        return 0 if self._final.known else self._gossip.end

    async def agree(self) -> None:
        await self._final.begin()

    async def take_place(self, state: State, round_: int) -> None:
        """Do nothing: a joining worker takes the model of a neighbour (``FinalModel``)."""

    async def regroup(self) -> None:
        """Do nothing: the algorithm itself mixes with the new members from a later round on."""

    async def meet(self, resume: Callable[[], Awaitable[None]] | None) -> int:
        first_round = await super().meet(resume)
        if self._peers.continues:
            if self._final.known:
                first_round = self._peers.last + 1
            self._model.begin_at(sum(map(sync_setup.local_steps(self._plan), range(first_round))))
        self._gossip.start(first_round)
        return first_round

    async def ready(self, round_: int) -> None:
        if not self._final.known:
            await self._gossip.ready(round_)

    async def run(self, round_: int, over: Callable[[RoundDone], None]) -> None:
        await self._gossip.run(round_, over)

    def score(self, round_: int) -> None:
        self._gossip.score(round_)

    async def settle(self) -> None:
        await self._mean.settled()

    async def finish(self, rounds: int) -> FinalScore:
        await self._final.average()
        await self._mean.settled()
        round_ = self._gossip.final_round(rounds)
        if self.evaluation.active:
            self._world.record("consensus", round=round_, distance=self._final.distance)
        return FinalScore(round_, changed=True)
