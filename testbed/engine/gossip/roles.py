"""The role of a gossiping worker, from the Plan. Such a run has workers and a scheduler, and no servers.

When the last round is over, all models are averaged exactly, so that a run ends with one model; the distance of the
models from it is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from testbed.engine.gossip.model import GossipMail, OwnModel
from testbed.engine.gossip.synchronous import SynchronousGossip
from testbed.engine.guard import guarded
from testbed.engine.learner import make_learner
from testbed.engine.local_work import serverless_work
from testbed.errors import ScenarioError
from testbed.plan.model import NodePlan, Plan
from testbed.policy.events import Contribution
from testbed.policy.gossip import ALGORITHMS, GossipOptions
from testbed.policy.gossip.graphs import GRAPHS, Graph, complete, exponential, given, is_connected
from testbed.policy.gossip.mixing import LanAndWan, Metropolis, Mixing, OneMixing, Partners, PushToAll, PushToOne
from testbed.policy.shard.slices import buckets_of
from testbed.state import State, below, joined, take_over, under
from testbed.training.learner import Learner
from testbed.world import Role, World

FIRST_VALUES_BYTES = 25_000_000  # of one message
_SPARSE_STEP = 0.2  # γ where a message holds some elements only: with 1, models follow what is long out of date

Gossip = SynchronousGossip | AsynchronousGossip


def gossip_worker(plan: Plan, node: NodePlan, files: CheckpointFiles | None = None) -> Role:
    """Return the role of ``node``, a worker of a run with paradigm ``gossip``."""
    learner = guarded(plan, node, make_learner(plan, node))
    options = GossipOptions(**plan.technique.paradigm.options)
    graph = graph_of(plan, options.graph)

    async def train(world: World, start: Start) -> int:
        ranks = [worker.name for worker in plan.training_workers]
        work = serverless_work(plan, learner, start.values)
        model = OwnModel(world, plan, learner, work, start.values, _factor(plan, node, options))
        gossip = _make_gossip(plan, options, graph, world, GossipMail(world, start.session.inbox), model)
        workers = Collectives(world, start.mail, ranks, name="end")
        workers.round = -1  # after training
        evaluation, checkpointer = Evaluation(world, plan, learner), start.checkpointer
        if checkpointer.resumed:
            take_over({"learner": learner, "gossip": gossip}, checkpointer.state)
            evaluation.load_state(below("evaluation", checkpointer.state))
        await start.together(workers.size)
        evaluation.begin(plan.training.rounds, workers.size)

        async def state() -> State:
            kept = joined({"learner": learner, "gossip": gossip})
            return kept | under("evaluation", await evaluation.state())

        async def keep(round_: int) -> None:
            if checkpointer.due(round_):
                await checkpointer.save(round_, state)

        rounds = await gossip.run(evaluation, checkpointer.first_round, keep)
        await start.session.membership.barrier("trained", workers.size)  # from here on no model changes
        learner.load(await _average(world, workers, gossip.value, learner, rounds))
        await evaluation.finish(rounds)
        return rounds

    return serverless_worker(plan, node, learner, buckets_of(learner.sizes, FIRST_VALUES_BYTES), train, files)


def _factor(plan: Plan, node: NodePlan, options: GossipOptions) -> float:
    """Return what a worker's step counts for, so that the average of all models moves as it should."""
    workers = len(plan.training_workers)
    if sync_setup.contribution_of(plan) is Contribution.GRADIENT:
        return float(workers) if options.gradients == "sum" else 1.0
    return workers * contribution_weight(plan, node) if node.trains else 0.0


async def _average(world: World, workers: Collectives, flat: Tensor, learner: Learner, rounds: int) -> list[Tensor]:
    """Return the average of all models; record their root-mean-square distance from it."""
    mean = await workers.all_reduce(flat) / workers.size
    squares = await workers.all_reduce((flat - mean).double().square().sum().reshape(1))
    distance = None if squares.is_meta else sqrt(float(squares) / workers.size)
    world.record("consensus", round=rounds - 1, distance=distance)
    return list(torch.split(mean, list(learner.sizes)))


def _make_gossip(
    plan: Plan, options: GossipOptions, graph: Graph, world: World, mail: GossipMail, model: OwnModel
) -> Gossip:
    ranks = [worker.name for worker in plan.training_workers]
    algorithm, lan_rounds = ALGORITHMS[options.algorithm], sync_setup.lan_rounds(plan)
    if algorithm.pairwise:
        mine = ranks.index(world.node)
        inside, everyone = Partners(_inside(plan, options.graph, _sites(plan)), mine), Partners(graph, mine)
        return AsynchronousGossip(
            world, mail, model, ranks, lambda round_: inside if (round_ + 1) % lan_rounds else everyone, plan
        )
    push = algorithm.pushes

    def mixing_of(graph: Graph, groups: Sequence[Sequence[int]]) -> OneMixing:
        if not push:
            return Metropolis(graph)
        return PushToOne(groups) if GRAPHS.get(options.graph) is exponential else PushToAll(graph)

    across, sites = mixing_of(graph, [range(len(ranks))]), _sites(plan)
    mixing: Mixing = across
    if lan_rounds > 1:
        mixing = LanAndWan(mixing_of(_inside(plan, options.graph, sites), sites), across, lan_rounds)
    synchronous = SynchronousGossip(world, mail, model, ranks, mixing, plan, push=push)
    synchronous.compression = _compression(plan, options, world, model, mixing)
    return synchronous


def _compression(
    plan: Plan, options: GossipOptions, world: World, model: OwnModel, mixing: Mixing
) -> Compression | None:
    """Return what models pass through; ``None`` if they travel as they are."""
    choice, workers = plan.technique.codec_tier2, len(plan.training_workers)
    codec = CODECS[choice.kind]
    if codec.exact:
        return None
    step = options.step or (_SPARSE_STEP if codec.sparse else 1.0)

    def make() -> Codec:
        return make_codec(choice.kind, choice.options, 2, workers, plan.seed)

    return Compression(world, (choice.kind, make), model.flat, step, together=mixing.period == 1)


def graph_of(plan: Plan, kind: str) -> Graph:
    """Return the neighbours of each training worker, in rank order. Raise ``ScenarioError`` unless it is connected."""
    workers = plan.training_workers
    graph = _network(plan, workers) if kind == "network" else GRAPHS[kind](len(workers))
    if not is_connected(graph):
        raise ScenarioError("paradigm: the graph of the workers is not connected, so they could never agree")
    return graph


def _sites(plan: Plan) -> list[list[int]]:
    """Return the ranks of the training workers, data centre by data centre."""
    by_site: dict[str, list[int]] = {}
    for rank, worker in enumerate(plan.training_workers):
        by_site.setdefault(worker.data_center, []).append(rank)
    return list(by_site.values())


def _inside(plan: Plan, kind: str, sites: Sequence[Sequence[int]]) -> Graph:
    """Return the neighbours of each training worker in rounds inside its data centre: that graph, of its workers."""
    edges = []
    for ranks in sites:
        graph = GRAPHS.get(kind, complete)(len(ranks))
        edges += [(ranks[one], ranks[other]) for one, others in enumerate(graph) for other in others]
    return given(len(plan.training_workers), edges)


def _network(plan: Plan, workers: Sequence[NodePlan]) -> Graph:
    """Join all workers of a data centre, and the first workers of those with no third one on the path between."""
    by_site: dict[str, list[int]] = {}
    for rank, worker in enumerate(workers):
        by_site.setdefault(worker.data_center, []).append(rank)
    inside = [(a, b) for ranks in by_site.values() for a in ranks for b in ranks]
    across = [(by_site[a][0], by_site[b][0]) for a in by_site for b in by_site if a != b and _direct(plan, a, b)]
    return given(len(workers), (*inside, *across))


def _direct(plan: Plan, source: str, target: str) -> bool:
    links = {link.name: link for link in plan.network.links}
    sites = {site.name for site in plan.network.sites}
    path = plan.network.between(source, target)
    return not any(links[name].target in sites for name in path[:-1])
