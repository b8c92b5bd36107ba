"""Workers without servers: what those of all-reduce and of gossip have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from testbed import buffers
from testbed.engine import coding
from testbed.engine.checkpoint import CheckpointFiles
from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.operation import CollectiveMail, unless_changed
from testbed.engine.driver import RoundDriver
from testbed.engine.evaluation import Evaluation
from testbed.engine.exchange import Exchange
from testbed.engine.local_work import OwnStep
from testbed.engine.membership import TRAIN, MembershipChanged
from testbed.engine.peers import FIRST_VALUES, NOTHING, Agreed, Peers
from testbed.engine.session import Session
from testbed.messages import MessageKind
from testbed.plan.model import NodePlan, Plan
from testbed.state import Remembering, State
from testbed.training.learner import SegmentedLearner
from testbed.world import World

Buckets = tuple[tuple[int, ...], ...]  # keys of each bucket
FIRST_VALUES_BYTES = 25_000_000  # of one message, where values of training are not cut into buckets


@dataclass(frozen=True, slots=True)
class StepAndScore:
    """How a worker makes a training step, and how the model is scored."""

    make_step: OwnStep
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class PlaceInRun:
    """What a worker needs to exchange with others: its node, its session, its mail, and who they are.

    own  how it makes a step, and how its model is scored, where both are not of this worker alone
    """

    node: NodePlan
    session: Session
    mail: CollectiveMail
    peers: Peers
    own: StepAndScore | None = None


class ServerlessExchange(Remembering, Exchange):
    """An exchange of workers with each other. First values travel in ``buckets``."""

    def __init__(self, place: PlaceInRun, plan: Plan, learner: SegmentedLearner, buckets: Buckets) -> None:
        self._place = place
        self._node = place.node
        self._session = place.session
        self._mail = place.mail
        self._peers = place.peers
        self._world = place.session.world
        self._plan = plan
        self._learner = learner
        self._buckets = buckets
        self.evaluation = place.own.evaluation if place.own else Evaluation(self._world, plan, learner)
        self._peers.on_change.append(lambda _: self.evaluation.done_by(self._peers.eldest))
        self._progress = NOTHING
        self._company = self._peers.company  # with whom this worker exchanges
        self.workers = len(place.session.plan.training_workers)

    async def begin(self, state: State | None, after: int) -> None:
        if state is None:
            values, self._progress = await self._first_values()
        else:
            values = self._learner.values()
            self._progress = after
        if not self._node.trains:
            return
        await self.prepare(values)
        self._company = self._peers.company
        if state is not None:
            self.evaluation.done_by(self._peers.eldest)
            self.load_state(state)

    async def _first_values(self) -> tuple[list[Tensor], int]:
        """Return a worker's first values, and what they are: a worker that joins a run in progress has none."""
        names = [
            worker.name for worker in self._plan.with_role("worker") if self._peers.joined_in(worker.name) is not None
        ]
        if self._peers.joined_late:
            return self._learner.values(), NOTHING
        try:
            return await first_values(self._world, self._mail, self._learner, self._buckets, names), FIRST_VALUES
        except MembershipChanged:
            return self._learner.values(), NOTHING

    @abstractmethod
    async def prepare(self, values: list[Tensor]) -> None:
        """Make what exchanges ``values``, those with which training begins."""

    @abstractmethod
    async def take_place(self, state: State, round_: int) -> None:
        """Take the place of a worker that has done ``round_``, which this one has not; ``state`` is what it provides.

        Set ``Peers.progress`` before anything is awaited.
        """

    @abstractmethod
    async def regroup(self) -> None:
        """Prepare to exchange with those who take part now; what is under way is made again with them."""

    @property
    def grouped(self) -> bool:
        """Whether this worker exchanges with those who take part now."""
        return not self._company.ended

    async def agree(self) -> None:
        """Return when all workers agree who takes part, and this one has what the others have."""
        peers = self._peers
        while True:
            agreed, state = await peers.agreed(self._take_from)
            company = peers.company
            if state is not None:
                await self.take_place(state, agreed.progress)
            if not company.ended:
                break
        if peers.progress == NOTHING:
            peers.progress = FIRST_VALUES  # no worker has any: these are the first
        await self.regroup()
        self._company = company

    def _take_from(self, agreed: Agreed) -> str:
        progress = NOTHING if self._peers.progress is None else self._peers.progress
        return agreed.holder if progress < agreed.progress and agreed.holder != self._world.node else ""

    async def ready(self, round_: int) -> None:
        if self._peers.continues and not self.grouped:
            await self.agree()

    async def meet(self, resume: Callable[[], Awaitable[None]] | None) -> int:
        """Return the round after the last one that is done. Where workers agree, they do that first."""
        peers = self._peers
        if peers.continues:
            await peers.greet()
            peers.report(self._progress)
            await self.agree()
            self.evaluation.done_by(peers.eldest)
            self.workers = len(peers.names)
        else:
            peers.progress = self._progress
        if resume is not None:
            await resume()
        elif not peers.continues:
            await self._session.membership.barrier(TRAIN, self.workers)
        assert peers.progress is not None, "it has reported"
        return peers.progress + 1


def serverless_worker(
    plan: Plan,
    node: NodePlan,
    learner: SegmentedLearner,
    make_exchange: Callable[[PlaceInRun], ServerlessExchange],
    files: CheckpointFiles | None = None,
    make_own: Callable[[Session], StepAndScore] | None = None,
    company: Plan | None = None,
) -> Callable[[Any], Awaitable[list[Tensor]]]:
    """Return the role of a worker of a run without servers.

    make_own  makes what ``PlaceInRun.own`` is, before messages are read
    company   the Plan of those with whom the worker exchanges, where these are not all
    """

    async def run(world: World) -> list[Tensor]:
        session = Session(plan, node, world, company)
        peers = session.peers
        mail = CollectiveMail(world, session.inbox, peers)
        session.inbox.drop(MessageKind.GOSSIP)  # a worker is sent its first when it has greeted the others
        session.use(learner)
        own = make_own(session) if make_own is not None else None
        await session.join()
        exchange = make_exchange(PlaceInRun(node, session, mail, peers, own))
        rounds = await RoundDriver(session, plan, node, learner, exchange, files).run()
        await session.finish()
        return await session.record_final(learner.values(), rounds=rounds)

    return run


async def first_values(
    world: World, mail: CollectiveMail, learner: SegmentedLearner, buckets: Buckets, names: Sequence[str]
) -> list[Tensor]:
    """Load the first worker's values at all workers, those that do not train included.

    Return them by key, where the learner's own are.
    """
    workers = Collectives(world, mail, names, name="start")
    workers.round = -1  # before training
    values = learner.values()
    on_host = values[0].is_cpu or values[0].is_meta
    flats = [await coding.exact(world, buffers.joined([values[key] for key in bucket])) for bucket in buckets]
    tasks = [world.spawn(unless_changed(partial(workers.broadcast, flat)), "first values") for flat in flats]
    for bucket, task in zip(buckets, tasks, strict=True):
        what = f"first values of keys {bucket[0]} to {bucket[-1]} from {workers.ranks[0]}"
        done, flat = await world.wait(task, what)
        if not done or flat is None:
            raise MembershipChanged
        for key, value in zip(bucket, split(flat, bucket, learner.sizes), strict=True):
            values[key] = value
    learner.load(values)
    return values if on_host else learner.values()


def split(flat: Tensor, keys: Sequence[int], sizes: Sequence[int]) -> list[Tensor]:
    """Return the tensors of ``keys`` in ``flat``, which has them one after the other; ``sizes``: of all keys."""
    return list(torch.split(flat, [sizes[key] for key in keys]))
