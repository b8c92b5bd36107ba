"""Puts a gossiping worker together from the Plan. Beside the workers a run has only its scheduler.

When the last round is over, all models are averaged exactly, so that a run ends with one model; the distance from it
before that is recorded.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from testbed.codec.options import CODECS
from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.mail import CollectiveMail
from testbed.engine.collectives.worker import first_values
from testbed.engine.evaluation import Evaluation
from testbed.engine.gossip.asynchronous import AsynchronousGossip
from testbed.engine.gossip.mail import GossipMail
from testbed.engine.gossip.model import OwnModel
from testbed.engine.gossip.synchronous import SynchronousGossip
from testbed.engine.gossip.topology import graph_of
from testbed.engine.guard import Guarded, guarded
from testbed.engine.inbox import Inbox
from testbed.engine.learner import make_learner
from testbed.engine.loading.trainer import begin_loading, finish_loading
from testbed.engine.membership import Membership
from testbed.errors import ScenarioError
from testbed.plan.model import NodePlan, Plan
from testbed.policy.collective.buckets import buckets_of
from testbed.policy.gossip import GossipOptions
from testbed.policy.gossip.graphs import Graph
from testbed.policy.gossip.mixing import Metropolis, Mixing, PushToAll, PushToOne, check
from testbed.policy.gossip.pairs import Partners
from testbed.training.learner import Learner, values_sha256
from testbed.world import Role, World

FIRST_VALUES_BYTES = 25_000_000  # of one message


def gossip_worker(plan: Plan, node: NodePlan) -> Role:
    """The role of ``node``, a worker of a run with paradigm ``gossip``."""
    learner = guarded(plan, node, make_learner(plan, node))
    options = GossipOptions(**plan.technique.paradigm.options)
    graph = graph_of(plan, options.graph)
    if not CODECS[plan.technique.codec_tier2.kind].exact:
        fitting = " or ".join(CODECS.where(lambda codec: codec.exact))
        raise ScenarioError(f"codec: gossip averages models, and rounding would change the average; write {fitting}")

    async def run(world: World) -> list[Tensor]:
        world.record("start", role=node.role, data_center=node.data_center)
        inbox = Inbox(world)
        membership, mail = Membership(world, inbox, plan), CollectiveMail(world, inbox)
        gossip = GossipMail(world, inbox)
        begin_loading(learner, world, inbox)
        reading = world.spawn(inbox.run(), "inbox")
        await membership.join()
        if isinstance(learner, Guarded):
            learner.record = world.record
        everybody = Collectives(world, mail, [worker.name for worker in plan.with_role("worker")], name="start")
        everybody.round = -1  # no training yet
        values = await first_values(world, everybody, learner, buckets_of(learner.sizes, FIRST_VALUES_BYTES))
        rounds = 0
        if node.trains:
            ranks = [worker.name for worker in plan.with_role("worker") if worker.trains]
            factor = float(len(ranks)) if options.gradients == "sum" else 1.0
            model = OwnModel(world, plan, learner, values, factor)
            one = _make(plan, options, graph, world, gossip, model)
            after = Collectives(world, mail, ranks, name="end")
            after.round = -1  # no training any more
            rounds = await _train(plan, world, membership, after, learner, one)
        await finish_loading(learner)
        await membership.finish()
        await reading
        world.record("final", role=node.role, rounds=rounds, parameters_sha256=values_sha256(learner.values()))
        return learner.values()

    return run


Gossip = SynchronousGossip | AsynchronousGossip


async def _train(
    plan: Plan, world: World, membership: Membership, everybody: Collectives, learner: Learner, one: Gossip
) -> int:
    await membership.barrier("train", everybody.size)
    training, evaluation = plan.training, None
    if everybody.rank == 0:
        world.record("train", rounds=training.rounds, workers=everybody.size)
        evaluation = Evaluation(world, learner, training.evaluate_every, training.target_accuracy)
    rounds = await one.run(evaluation)
    await membership.barrier("trained", everybody.size)  # from here on nobody's model moves
    learner.load(await _average(world, everybody, one.value, learner, rounds))
    if evaluation:
        await evaluation.finish(rounds)
    return rounds


async def _average(world: World, everybody: Collectives, flat: Tensor, learner: Learner, rounds: int) -> list[Tensor]:
    """The average of all models; records how far they were from it."""
    mean = await everybody.all_reduce(flat) / everybody.size
    away = await everybody.all_reduce((flat - mean).double().square().sum().reshape(1))
    distance = None if away.is_meta else sqrt(float(away) / everybody.size)
    world.record("consensus", round=rounds - 1, distance=distance)
    return list(torch.split(mean, list(learner.sizes)))


def _make(plan: Plan, options: GossipOptions, graph: Graph, world: World, mail: GossipMail, model: OwnModel) -> Gossip:
    ranks = [worker.name for worker in plan.with_role("worker") if worker.trains]
    rounds = plan.training.rounds
    if options.algorithm == "adpsgd":
        partners = Partners(graph, ranks.index(world.node))
        return AsynchronousGossip(world, mail, model, ranks, partners, rounds * len(ranks), plan.seed)
    push = options.algorithm == "sgp"
    mixing: Mixing = Metropolis(graph)
    if push:
        mixing = PushToOne(len(ranks)) if options.graph == "exponential" else PushToAll(graph)
    check(mixing, doubly=not push)
    return SynchronousGossip(world, mail, model, ranks, mixing, rounds, push=push)
