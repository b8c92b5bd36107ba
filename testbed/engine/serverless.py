"""Workers without servers: the common part of all-reduce, gossip and users' own paradigms."""

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

Buckets = tuple[tuple[int, ...], ...]  # the keys of each bucket
FIRST_VALUES_BYTES = 25_000_000  # size of a message of first values, if training itself uses no buckets


@dataclass(frozen=True, slots=True)
class StepAndScore:
    """Makes a worker's training steps, and scores the model."""

    make_step: OwnStep
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class PlaceInRun:
    """The parts with which a worker exchanges with others: its node, its session, its mail, and the other nodes.

    own  makes steps and scores the model, if several workers do both together (a pipeline)
    """

    node: NodePlan
    session: Session
    mail: CollectiveMail
    peers: Peers
    own: StepAndScore | None = None


class ServerlessExchange(Remembering, Exchange):
    """An exchange among workers. First values are sent in ``buckets``."""

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
        self._company = self._peers.company  # the nodes with which this worker exchanges
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
        """Return this worker's values and its progress: ``FIRST_VALUES``, or ``NOTHING`` if it joins late.

        The progress is also ``NOTHING`` if the membership changes meanwhile.
        """
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
        """Prepare to exchange. ``values``: the values with which training begins."""

    @abstractmethod
    async def take_place(self, state: State, round_: int) -> None:
        """Take over the ``state`` of a worker that has done ``round_``, which this worker has not done.

        Set ``Peers.progress`` before awaiting anything.
        """

    @abstractmethod
    async def regroup(self) -> None:
        """Prepare to exchange with the nodes that take part now; exchanges in progress are repeated with them."""

    @property
    def grouped(self) -> bool:
        """Whether this worker exchanges with the nodes that take part now."""
        return not self._company.ended

    async def agree(self) -> None:
        """Return when all workers agree on the membership, and this worker has the others' progress."""
        peers = self._peers
        while True:
            agreed, state = await peers.agreed(self._take_from)
            company = peers.company
            if state is not None:
                await self.take_place(state, agreed.progress)
            if not company.ended:
                break
        if peers.progress == NOTHING:
            peers.progress = FIRST_VALUES  # no worker has first values: this worker's values are the first
        await self.regroup()
        self._company = company

    def _take_from(self, agreed: Agreed) -> str:
        progress = NOTHING if self._peers.progress is None else self._peers.progress
        return agreed.holder if progress < agreed.progress and agreed.holder != self._world.node else ""

    async def ready(self, round_: int) -> None:
        if self._peers.continues and not self.grouped:
            await self.agree()

    async def meet(self, resume: Callable[[], Awaitable[None]] | None) -> int:
        """Return the round after the last round done. In a run that continues without lost nodes, agree first."""
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

    make_own  makes ``PlaceInRun.own``; called before messages are read
    company   the Plan of the nodes with which the worker exchanges, if these are not all nodes
    """

    async def run(world: World) -> list[Tensor]:
        session = Session(plan, node, world, company)
        peers = session.peers
        mail = CollectiveMail(world, session.inbox, peers)
        session.inbox.drop(MessageKind.GOSSIP)  # until this worker has greeted the others, it expects none
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
    """Load the first worker's values at all workers, including those that do not train.

    Return the values in the order of keys, on the learner's device.
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
    """Split ``flat``, the joined tensors of ``keys``, into these tensors. ``sizes``: the elements of every key."""
    return list(torch.split(flat, [sizes[key] for key in keys]))
