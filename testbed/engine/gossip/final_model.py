"""The final model of a run with gossip, and the models that joining workers take over until then."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor

from testbed.engine.collectives.collectives import Collectives
from testbed.engine.gossip.algorithm import GossipAlgorithm
from testbed.engine.membership import MembershipChanged
from testbed.engine.peers import ENDED, NOTHING, TRAINED, Agreed
from testbed.engine.serverless import PlaceInRun
from testbed.state import State
from testbed.training.learner import Learner
from testbed.world import Future, Work


class FinalModel:
    """The model that other workers take from this one: its own while all train, then the average of all, the result.

    ``known``: the result has been computed. It then stays the result even if workers are lost: a worker without it
    takes it from one that has it. ``distance``: the root-mean-square distance of all models from the result, if this
    worker has computed it. A joining worker takes the model of a neighbour, and takes part from the first round that no
    other worker has begun yet.
    """

    def __init__(self, place: PlaceInRun, learner: Learner, gossip: GossipAlgorithm) -> None:
        self._world = place.session.world
        self._place = place
        self._peers = place.peers
        self._learner = learner
        self._gossip = gossip
        self.known = False
        self.distance: float | None = None
        self._joins = ""  # at a joining worker: the worker whose model it takes, as all have agreed
        self._has_model: Future[None] = self._world.future()
        self._peers.states.provide = self._provide
        self._peers.on_agreed.append(self._on_agreed)

    async def begin(self) -> None:
        """Wait until all have agreed on the members, and this worker has a model."""
        await self._agree()
        while self._joins and not self.known:
            source = self._source()
            if not source:
                break  # no other worker has a model, so this worker begins with its own
            try:
                self._gossip.take(await self._peers.states.ask(source))
                break
            except MembershipChanged:
                continue
        self._has_model.set_result(None)

    @property
    def first(self) -> int:
        """Return the first round of this worker."""
        assert self._peers.progress is not None, "it has reported"
        return self._peers.progress + 1

    def _source(self) -> str:
        """Return the worker whose model to take, if possible a neighbour.

        It must have joined before this worker, so that workers do not wait for each other in a circle.
        """
        names = self._peers.names
        node = self._world.node
        mine = self._peers.joined_in(node) or 0
        if not mine:
            first = self._joins if self._joins in names else names[0]
            return first if first != node else ""
        older = [name for name in names if (self._peers.joined_in(name) or 0) < mine]
        return next((name for name in older if name in self._gossip.neighbours), older[0] if older else "")

    def _on_agreed(self, agreed: Agreed) -> None:
        if agreed.progress == ENDED:
            return
        if self._peers.progress == NOTHING:
            self._joins = agreed.holder
            self._peers.progress = agreed.progress
        self._gossip.agree(agreed)

    async def _provide(self) -> State:
        await self._world.wait(self._has_model, "a model of this worker's own")
        ended = {"result": torch.cat(self._learner.values())} if self.known else {}
        # done as work of this worker, so that no step changes the model meanwhile
        work = Work("copy", size_bytes=4 * sum(self._learner.sizes))
        return ended | await self._world.compute(work, self._gossip.give)

    async def _agree(self) -> None:
        """Wait until all have agreed on the members, and this worker has the result if another one has it."""
        _, state = await self._peers.agreed(
            lambda agreed: agreed.holder if agreed.progress == ENDED and not self.known else ""
        )
        if state is not None:
            self._load(torch.split(state["result"], list(self._learner.sizes)))

    async def average(self) -> None:
        """Average the models of all present workers."""
        if not self.known:
            members = len(self._place.session.plan.training_workers if self._place.own else self._peers.names)
            await self._place.session.membership.barrier(TRAINED, members)  # from here on no model changes
        while not self.known:
            if self._peers.continues:
                await self._agree()
            if self.known:
                return
            company = self._peers.company
            workers = self._workers()
            try:
                mean, distance = await _average(workers, self._gossip.value)
            except MembershipChanged:
                continue
            if not company.ended:
                self.distance = distance
                self._load(torch.split(mean, list(self._learner.sizes)))

    def _workers(self) -> Collectives:
        workers = Collectives(self._world, self._place.mail, self._peers.names, name="end")
        workers.round = -1  # after training
        return workers

    def _load(self, values: Sequence[Tensor]) -> None:
        self.known = True
        self._peers.progress = ENDED
        self._learner.load(list(values))


async def _average(workers: Collectives, flat: Tensor) -> tuple[Tensor, float | None]:
    """Return the average of all models, and their distance from it; ``None`` for models without numbers."""
    mean = await workers.all_reduce(flat) / workers.size
    squares = await workers.all_reduce((flat - mean).double().square().sum().reshape(1))
    return mean, None if squares.is_meta else sqrt(float(squares) / workers.size)
