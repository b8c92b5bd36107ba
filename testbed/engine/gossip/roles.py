"""The role of a gossiping worker, from the Plan. Such a run has workers and a scheduler, and no servers.

When the last round is over, all models are averaged exactly, so that a run ends with one model; the distance of the
models from it is recorded. A worker that joins a run in progress begins with a neighbour's model.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from math import sqrt

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.options import CODECS
from testbed.codec.table import make_codec
from testbed.engine import sync_setup
from testbed.engine.aggregation_weights import contribution_weight
from testbed.engine.checkpoint import CheckpointFiles
from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.worker import Start, serverless_worker
from testbed.engine.evaluation import Evaluation
from testbed.engine.gossip.asynchronous import AsynchronousGossip
from testbed.engine.gossip.compressed import Compression
from testbed.engine.gossip.mean import MeanModel
from testbed.engine.gossip.model import GossipMail, OwnModel
from testbed.engine.gossip.synchronous import SynchronousGossip
from testbed.engine.guard import guarded
from testbed.engine.learner import make_learner
from testbed.engine.local_kinds import serverless_work
from testbed.engine.membership import MembershipChanged
from testbed.engine.peers import ENDED, NOTHING, TRAINED, Agreed
from testbed.errors import ScenarioError
from testbed.plan.model import NodePlan, Plan
from testbed.policy.events import Contribution
from testbed.policy.gossip import ALGORITHMS, GossipOptions
from testbed.policy.gossip.graphs import GRAPHS, Graph, complete, exponential, given, is_connected, joined_up
from testbed.policy.gossip.mixing import LanAndWan, Metropolis, Mixing, OneMixing, PushToAll, PushToOne
from testbed.policy.shard.slices import buckets_of
from testbed.state import State, below, joined, take_over, under
from testbed.training.learner import Learner
from testbed.world import Future, Role, Work, World

FIRST_VALUES_BYTES = 25_000_000  # of one message
_SPARSE_STEP = 0.2  # γ where a message holds some elements only: with 1, models follow what is long out of date

Gossip = SynchronousGossip | AsynchronousGossip


def gossip_worker(plan: Plan, node: NodePlan, files: CheckpointFiles | None = None) -> Role:
    """Return the role of ``node``, a worker of a run with paradigm ``gossip``."""
    learner = guarded(plan, node, make_learner(plan, node, on_host=True))
    options = GossipOptions(**plan.technique.paradigm.options)
    graph_of(plan, options.graph)  # refuse before anything starts

    async def train(world: World, start: Start) -> int:
        peers = start.peers
        work = serverless_work(plan, learner, start.values)
        model = OwnModel(world, plan, learner, work, start.values, _factor(plan, node, options))
        evaluation, checkpointer = Evaluation(world, plan, learner), start.checkpointer
        mail = GossipMail(world, start.session.inbox, peers)
        mean = MeanModel(world, mail, learner.sizes, evaluation)
        gossip = _make_gossip(plan, options, world, mail, model, mean)
        result = FinalModel(world, start, learner, gossip)
        peers.on_change.append(lambda epoch: evaluation.members(peers.by_seniority))
        if start.resumed:
            evaluation.members(peers.by_seniority)
            take_over({"learner": learner, "gossip": gossip}, checkpointer.state)
            evaluation.load_state(below("evaluation", checkpointer.state))
        await start.together(len(peers.names), result.begin)
        first = start.progress + 1
        if peers.regroups:
            first = result.first
            first = peers.last + 1 if result.known else first
            model.begin_at(sum(map(sync_setup.local_steps(plan), range(first))))
            evaluation.members(peers.by_seniority)
        evaluation.begin(plan.training.rounds, len(peers.names), resumed=checkpointer.checkpoint)

        async def state() -> State:
            await mean.settled()
            kept = joined({"learner": learner, "gossip": gossip})
            return kept | under("evaluation", await evaluation.state())

        async def keep(round_: int) -> None:
            if checkpointer.due(round_):
                await checkpointer.save(round_, state)

        rounds = first if result.known else await gossip.run(evaluation, first, keep, joins=peers.joined_late)
        await result.average()
        await mean.finish(gossip.final_round(rounds), result.distance)
        return rounds

    return serverless_worker(plan, node, learner, buckets_of(learner.sizes, FIRST_VALUES_BYTES), train, files)


def _factor(plan: Plan, node: NodePlan, options: GossipOptions) -> float:
    """Return what a worker's step counts for, so that the average of all models moves as it should."""
    workers = len(plan.training_workers)
    if sync_setup.contribution_of(plan) is Contribution.GRADIENT:
        return float(workers) if options.gradients == "sum" else 1.0
    return workers * contribution_weight(plan, node) if node.trains else 0.0


class FinalModel:
    """A worker's model as others take it: while all train, and in the end the average of all, the run's result.

    ``known``: the result has been computed. Then it stays, even if workers are lost: who has not got it takes it from
    one that has. ``distance``: the root-mean-square distance of all models from it, where this worker has computed it.
    A worker that joins takes part from the round on that follows all that others have begun, and until
    then has taken the model of a neighbour.
    """

    def __init__(self, world: World, start: Start, learner: Learner, gossip: Gossip) -> None:
        self._world, self._start, self._peers = world, start, start.peers
        self._learner, self._gossip = learner, gossip
        self.known = False
        self.distance: float | None = None
        self._joins = ""  # whose model to take, as far as all have agreed
        self._has_model: Future[None] = world.future()
        self._peers.states.provide, self._peers.on_agreed = self._provide, self._on_agreed

    async def begin(self) -> None:
        """Return when all have agreed who takes part, and this worker has a model."""
        await self._agree()
        while self._joins and not self.known:
            source = self._source()
            if not source:
                break  # no worker has one: it begins with its own
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
        """Return the worker whose model to take: a neighbour, if one was there before. So none waits for another."""
        names, node = self._peers.names, self._world.node
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
            self._joins, self._peers.progress = agreed.holder, agreed.progress
        self._gossip.agree(agreed)

    async def _provide(self) -> State:
        await self._world.wait(self._has_model, "a model of this worker's own")
        ended = {"result": torch.cat(self._learner.values())} if self.known else {}
        # as work, so that no step is changing the model meanwhile
        work = Work("copy", size_bytes=4 * sum(self._learner.sizes))
        return ended | await self._world.compute(work, self._gossip.give)

    async def _agree(self) -> None:
        """Return when all agree on the newest epoch, and this worker has the result, if another has."""
        _, state = await self._peers.agreed(
            lambda agreed: agreed.holder if agreed.progress == ENDED and not self.known else ""
        )
        if state is not None:
            self._load(torch.split(state["result"], list(self._learner.sizes)))

    async def average(self) -> None:
        """Average the models of all who take part."""
        if not self.known:
            members = len(self._peers.names)
            await self._start.session.membership.barrier(TRAINED, members)  # from here on no model changes
        while not self.known:
            if self._peers.regroups:
                await self._agree()
            if self.known:
                return
            epoch, workers = self._peers.epoch, self._workers()
            try:
                mean, distance = await _average(workers, self._gossip.value)
            except MembershipChanged:
                continue
            if self._peers.epoch == epoch:
                self.distance = distance
                self._load(torch.split(mean, list(self._learner.sizes)))

    def _workers(self) -> Collectives:
        workers = Collectives(self._world, self._start.mail, self._peers.names, name="end")
        workers.round = -1  # after training
        return workers

    def _load(self, values: Sequence[Tensor]) -> None:
        self.known, self._peers.progress = True, ENDED
        self._learner.load(list(values))


async def _average(workers: Collectives, flat: Tensor) -> tuple[Tensor, float | None]:
    """Return the average of all models, and their distance from it; ``None`` for models without numbers."""
    mean = await workers.all_reduce(flat) / workers.size
    squares = await workers.all_reduce((flat - mean).double().square().sum().reshape(1))
    return mean, None if squares.is_meta else sqrt(float(squares) / workers.size)


def _make_gossip(
    plan: Plan, options: GossipOptions, world: World, mail: GossipMail, model: OwnModel, mean: MeanModel
) -> Gossip:
    algorithm, lan_rounds = ALGORITHMS[options.algorithm], sync_setup.lan_rounds(plan)

    def graphs(names: Sequence[str]) -> tuple[Graph, Graph]:
        return _inside(options.graph, _sites(plan, names).values()), graph_of(plan, options.graph, tuple(names))

    def mixing_of(graph: Graph, groups: Sequence[Sequence[int]]) -> OneMixing:
        if not algorithm.pushes:
            return Metropolis(graph)
        return PushToOne(groups) if GRAPHS.get(options.graph) is exponential else PushToAll(graph)

    def mixing(names: Sequence[str]) -> Mixing:
        near, all_ = graphs(names)
        across = mixing_of(all_, [range(len(names))])
        if lan_rounds == 1:
            return across
        return LanAndWan(mixing_of(near, list(_sites(plan, names).values())), across, lan_rounds)

    if algorithm.pairwise:
        return AsynchronousGossip(world, mail, model, mean, graphs, plan)
    make = (mixing, partial(_compression, plan, options, world, model))
    return SynchronousGossip(world, mail, model, mean, plan, make, push=algorithm.pushes)


def _compression(
    plan: Plan, options: GossipOptions, world: World, model: OwnModel, mixing: Mixing, names: Sequence[str],
    from_start: bool,
) -> Compression | None:  # fmt: skip
    """Return what models pass through; ``None`` if they travel as they are.

    At the start all know the first values; after a change of the membership, they begin with zeros.
    """
    choice, workers = plan.technique.codec_tier2, len(plan.training_workers)
    codec = CODECS[choice.kind]
    if codec.exact:
        return None
    step = options.step or (_SPARSE_STEP if codec.sparse else 1.0)

    def make(sender: str) -> Codec:
        return make_codec(choice.kind, choice.options, 2, workers, plan.seed, sender=sender)

    first = model.flat if from_start else torch.zeros_like(model.flat)
    pushes = ALGORITHMS[options.algorithm].pushes
    return Compression(world, names, (choice.kind, make), first, step, together=mixing.period == 1, pushes=pushes)


def graph_of(plan: Plan, kind: str, present: tuple[str, ...] | None = None) -> Graph:
    """Return the neighbours of each training worker, or of those ``present``, in rank order.

    Raise ``ScenarioError`` unless all of them together are connected. What is left of them is joined up.
    """
    workers = [worker for worker in plan.training_workers if present is None or worker.name in present]
    graph = _network(plan, workers) if kind == "network" else GRAPHS[kind](len(workers))
    if is_connected(graph):
        return graph
    if len(workers) < len(plan.training_workers):
        return joined_up(graph)
    raise ScenarioError("paradigm: the graph of the workers is not connected, so they could never agree")


def _sites(plan: Plan, names: Sequence[str]) -> dict[str, list[int]]:
    """Return the ranks of training workers by data centre."""
    by_site: dict[str, list[int]] = {}
    for rank, name in enumerate(names):
        by_site.setdefault(plan.node(name).data_center, []).append(rank)
    return by_site


def _inside(kind: str, sites: Collection[Sequence[int]]) -> Graph:
    """Return the neighbours of each training worker in rounds inside its data centre: that graph, of its workers."""
    edges = []
    for ranks in sites:
        graph = GRAPHS.get(kind, complete)(len(ranks))
        edges += [(ranks[one], ranks[other]) for one, others in enumerate(graph) for other in others]
    return given(sum(map(len, sites)), edges)


def _network(plan: Plan, workers: Sequence[NodePlan]) -> Graph:
    """Join all workers of a data centre, and the first workers of those with no third one on the path between."""
    by_site = _sites(plan, [worker.name for worker in workers])
    inside = [(a, b) for ranks in by_site.values() for a in ranks for b in ranks]
    # a data centre without workers that train is a router
    with_workers = {worker.data_center for worker in plan.training_workers}
    passes = {link.name: link.target in with_workers for link in plan.network.links}
    across = [
        (by_site[a][0], by_site[b][0]) for a in by_site for b in by_site
        if a != b and not any(passes[name] for name in plan.network.between(a, b)[:-1])
    ]  # fmt: skip
    return given(len(workers), (*inside, *across))
