"""The exchange of a gossiping worker, from the Plan. Such a run has workers and a scheduler, and no servers.

When the last round is over, all models are averaged exactly, so that a run ends with one model; the distance of the
models from it is recorded. A worker that joins a run in progress begins with a neighbour's model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

import torch

from testbed.codec.base import Codec
from testbed.codec.options import CODECS
from testbed.codec.table import make_codec
from testbed.engine import sync_setup
from testbed.engine.aggregation_weights import contribution_weight
from testbed.engine.gossip.algorithm import GossipAlgorithm, GossipParts
from testbed.engine.gossip.asynchronous import AsynchronousGossip
from testbed.engine.gossip.changes import ChangesGossip
from testbed.engine.gossip.compressed import Compression
from testbed.engine.gossip.exchange import GossipExchange
from testbed.engine.gossip.model import OwnModel
from testbed.engine.gossip.synchronous import SynchronousGossip
from testbed.engine.serverless import FIRST_VALUES_BYTES, PlaceInRun, ServerlessExchange
from testbed.errors import ScenarioError
from testbed.plan.model import NodePlan, Plan
from testbed.policy.events import Contribution
from testbed.policy.gossip import ALGORITHMS, GossipOptions
from testbed.policy.gossip.graphs import GRAPHS, Graph, complete, exponential, given, is_connected, joined_up, matching
from testbed.policy.gossip.mixing import LanAndWan, Metropolis, Mixing, OneMixing, PushToAll, PushToOne, RandomPairs
from testbed.policy.shard.slices import buckets_of
from testbed.training.learner import SegmentedLearner
from testbed.world import World

_SPARSE_STEP = 0.2  # γ if a message holds only some elements: with 1, models would follow outdated known models


def gossip_exchange(
    plan: Plan, node: NodePlan, learner: SegmentedLearner
) -> Callable[[PlaceInRun], ServerlessExchange]:
    """Return a function that makes the exchange of ``node``, a worker that trains ``learner``."""
    options = GossipOptions(**plan.technique.paradigm.options)
    graph_of(plan, options.graph)  # refuse before anything starts
    buckets = buckets_of(learner.sizes, FIRST_VALUES_BYTES)
    make_gossip = partial(_make_gossip, plan, options)
    factor = _factor(plan, node, options)

    def make_exchange(place: PlaceInRun) -> GossipExchange:
        return GossipExchange(place, plan, learner, buckets, make_gossip, factor)

    return make_exchange


def _factor(plan: Plan, node: NodePlan, options: GossipOptions) -> float:
    """Return the weight of a worker's step, so that the average of all models moves as it should."""
    workers = len(plan.training_workers)
    if sync_setup.contribution_of(plan) is Contribution.GRADIENT:
        return float(workers) if options.gradients == "sum" else 1.0
    return workers * contribution_weight(plan, node) if node.trains else 0.0


def _make_gossip(plan: Plan, options: GossipOptions, world: World, parts: GossipParts) -> GossipAlgorithm:
    algorithm = ALGORITHMS[options.algorithm]
    lan_rounds = sync_setup.lan_rounds(plan)

    def graphs(names: Sequence[str]) -> tuple[Graph, Graph]:
        return _inside(options.graph, _sites(plan, names).values()), graph_of(plan, options.graph, tuple(names))

    def mixing_of(graph: Graph, groups: Sequence[Sequence[int]]) -> OneMixing:
        if GRAPHS.get(options.graph) is matching:
            return RandomPairs(groups, plan.seed)
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
        return AsynchronousGossip(world, parts, plan, graphs)
    make = (mixing, partial(_compression, plan, options, world, parts.model))
    if algorithm.changes:
        return ChangesGossip(world, parts, plan, make, push=False)
    return SynchronousGossip(world, parts, plan, make, push=algorithm.pushes)


def _compression(
    plan: Plan,
    options: GossipOptions,
    world: World,
    model: OwnModel,
    mixing: Mixing,
    names: Sequence[str],
    from_start: bool,
) -> Compression | None:
    """Return the compression of models; ``None`` if they travel as they are.

    At the start of a run, the known models are the first values; after a change of the membership, they are zeros.
    """
    choice = plan.technique.codec_tier2
    workers = len(plan.training_workers)
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

    Raise ``ScenarioError`` if the graph of all workers is not connected. If workers are missing, connect the others.
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
    """Return the neighbours of each training worker in LAN rounds: a graph of ``kind`` in each data centre."""
    edges = []
    for ranks in sites:
        graph = GRAPHS.get(kind, complete)(len(ranks))
        edges += [(ranks[one], ranks[other]) for one, others in enumerate(graph) for other in others]
    return given(sum(map(len, sites)), edges)


def _network(plan: Plan, workers: Sequence[NodePlan]) -> Graph:
    """Join all workers of each data centre, and the first workers of data centres with no third one between them."""
    by_site = _sites(plan, [worker.name for worker in workers])
    inside = [(a, b) for ranks in by_site.values() for a in ranks for b in ranks]
    # a data centre without workers that train is a router
    with_workers = {worker.data_center for worker in plan.training_workers}
    passes = {link.name: link.target in with_workers for link in plan.network.links}
    across = [
        (by_site[a][0], by_site[b][0])
        for a in by_site
        for b in by_site
        if a != b and not any(passes[name] for name in plan.network.between(a, b)[:-1])
    ]
    return given(len(workers), (*inside, *across))
