"""What a Plan's techniques mean for the parts of the engine: who weighs what, which optimizer stands where."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from testbed.codec.options import CODECS
from testbed.engine.kvworker import Slicer
from testbed.engine.learner import samples_of
from testbed.engine.local_work import LocalOptimizerWork, LocalSteps, LocalWork, OneGradient
from testbed.engine.upstream import OverwriteUpdate, ParameterState
from testbed.errors import ScenarioError
from testbed.kvstore import ScriptJob
from testbed.kvstore.store import pull_of
from testbed.plan.index import index_of
from testbed.plan.model import Choice, NodePlan, Plan
from testbed.policy.events import Contribution
from testbed.policy.order import ORDERS
from testbed.policy.order.base import Order
from testbed.policy.overlay import OVERLAYS
from testbed.policy.shard import SHARDS
from testbed.policy.shard.slices import Slice
from testbed.policy.sync import SYNC
from testbed.policy.sync.base import Member, SyncPolicy, Tier, WorkerDevice
from testbed.training.learner import Learner
from testbed.training.optimizers import KeyOptimizer, ModelOptimizer
from testbed.training.options import MODELS, OPTIMIZERS
from testbed.training.options.declarations import SCRIPT


def training_workers(plan: Plan) -> tuple[NodePlan, ...]:
    """Workers that contribute, in rank order."""
    return plan.training_workers


def sync_kind(choice: Choice) -> type[SyncPolicy]:
    """Return the synchronisation algorithm of a tier."""
    return SYNC[choice.kind]


def contribution_of(plan: Plan) -> Contribution:
    """Return what workers push: the algorithm that they face decides."""
    return sync_kind(plan.technique.sync_tier1).contribution


def worker_sync(plan: Plan) -> tuple[type[SyncPolicy], Any]:
    """Return the synchronisation algorithm that workers face, and its options."""
    choice = plan.technique.sync_tier1
    return SYNC[choice.kind], SYNC.options(choice.kind, choice.options)


def sync_policy(plan: Plan, node: NodePlan) -> SyncPolicy:
    """Return the policy of one server, over the children that contribute."""
    choice = plan.technique.sync_tier1 if node.role == "server" else plan.technique.sync_tier2
    return SYNC[choice.kind](tier_of(plan, node), SYNC.options(choice.kind, choice.options))


def tier_of(plan: Plan, node: NodePlan) -> Tier:
    """Return what the policy of ``node`` knows of its place: its members, with the training workers below each."""
    below: dict[str, list[WorkerDevice]] = defaultdict(list)
    for worker in training_workers(plan):
        device = WorkerDevice(worker.name, worker.device.step_time_s)
        for name in (worker.name, *worker.parents):
            below[name].append(device)
    two_tiers, technique = bool(plan.with_role("server")), plan.technique
    passed_on = node.role == "global_server" and two_tiers and not sync_kind(technique.sync_tier1).waits
    return Tier(
        tuple(
            Member(name, tuple(below[name]), max(1, len(below[name])) if passed_on else 1)
            for name in contributors(plan, node)
        ),
        number=1 if node.role == "server" else 2,
        top=node.role == "global_server",
        steps_assigned_above=node.role == "server" and sync_kind(technique.sync_tier2).assigns_steps,
    )


def contributors(plan: Plan, node: NodePlan) -> tuple[str, ...]:
    """Children that contribute to every round: training workers, or the servers of data centres that have one."""
    contributing = index_of(plan.nodes).contributing
    return tuple(child for child in node.children if child in contributing)


def worker_weight(plan: Plan, node: NodePlan) -> float:
    """What a worker counts for in the mean of its server; 1 where contributions are summed (gradients)."""
    if contribution_of(plan) is Contribution.GRADIENT:
        return 1.0
    if not node.trains:
        return 0.0  # the master worker of a data centre without others
    weights = mean_weights(plan)
    mates = [worker.name for worker in training_workers(plan) if worker.parents == node.parents]
    return weights[node.name] / math.fsum(weights[name] for name in mates)


def party_weight(plan: Plan, server: NodePlan) -> float:
    """What a data centre counts for in the mean over all; 1 where contributions are summed."""
    if contribution_of(plan) is Contribution.GRADIENT:
        return 1.0
    weights = mean_weights(plan)
    mine = [worker.name for worker in training_workers(plan) if server.name in worker.parents]
    return math.fsum(weights[name] for name in mine) / math.fsum(weights.values())


def shares(plan: Plan, node: NodePlan) -> dict[str, float]:
    """What each contributing child counts for in what a server combines: in workers, or in its weight in the mean."""
    below = Counter(parent for worker in training_workers(plan) for parent in worker.parents)
    if contribution_of(plan) is Contribution.GRADIENT:
        return {child: float(below.get(child, 1)) for child in contributors(plan, node)}
    weight = party_weight if node.role == "global_server" and plan.with_role("server") else worker_weight
    return {child: weight(plan, plan.node(child)) for child in contributors(plan, node)}


def mean_weights(plan: Plan) -> dict[str, float]:
    """What every training worker counts for in the mean over all, by the option ``weights``; not normalised."""
    algorithm, options = worker_sync(plan)
    workers, rule = training_workers(plan), algorithm.weights(options)
    if rule == "party":
        sizes = Counter(worker.data_center for worker in workers)
        return {worker.name: 1.0 / sizes[worker.data_center] for worker in workers}
    samples = samples_of(plan) if rule == "sample" else [1] * len(workers)
    return {worker.name: float(count) for worker, count in zip(workers, samples, strict=True)}


def order(plan: Plan) -> Order:
    """Return what decides which slice is sent next."""
    choice = plan.technique.order
    return ORDERS[choice.kind](ORDERS.options(choice.kind, choice.options))


def overlaps(plan: Plan) -> bool:
    """Return whether layers are sent while others are being computed."""
    choice = plan.technique.order
    return ORDERS[choice.kind].overlaps(ORDERS.options(choice.kind, choice.options))


def slicer(plan: Plan) -> Slicer:
    """Where keys live: placed by the shard axis, cut further by the order axis. Raises ``ScenarioError``."""
    choice, cutter = plan.technique.shard, order(plan)
    shard = SHARDS[choice.kind](SHARDS.options(choice.kind, choice.options))
    optimizer, contribution = plan.technique.optimizer, contribution_of(plan)
    at_top = contribution is Contribution.GRADIENT and optimizer.options.get("at") != "worker"

    def slices(sizes: tuple[int, ...], servers: int) -> tuple[Slice, ...]:
        found = cutter.cut(shard.slices(sizes, servers))
        if at_top and OPTIMIZERS[optimizer.kind].whole_tensors and len(found) > len(sizes):
            raise ScenarioError(
                f"optimizer: '{optimizer.kind}' takes norms of whole tensors, and here servers update slices of them; "
                "write 'at: worker', 'order: fifo', or a larger bound for 'shard'"
            )
        return found

    return slices


def local_work(plan: Plan, node: NodePlan, learner: Learner) -> LocalWork:
    """What a worker does between two synchronisations."""
    optimizer, contribution = plan.technique.optimizer, contribution_of(plan)
    if contribution is Contribution.GRADIENT:
        if optimizer.options.get("at") != "worker":
            return OneGradient(learner)
        return LocalOptimizerWork(learner, _own_optimizer(optimizer, learner), len(training_workers(plan)))
    return LocalSteps(learner, _own_optimizer(optimizer, learner), contribution, worker_weight(plan, node))


def local_steps(plan: Plan) -> Callable[[int], int]:
    """Return the function from a round to the local steps that the algorithm declares for it."""
    algorithm, options = worker_sync(plan)
    return partial(algorithm.local_steps, options)


def needs_reports(plan: Plan) -> bool:
    """Return whether workers measure their steps and transfers for an algorithm of either tier."""
    return any(sync_kind(each).needs_reports for each in (plan.technique.sync_tier1, plan.technique.sync_tier2))


def lan_rounds(plan: Plan) -> int:
    """Return the number of a worker's rounds to one whose aggregate crosses the WAN."""
    algorithm, options = worker_sync(plan)
    return algorithm.lan_rounds(options)


def top_key(plan: Plan) -> Callable[[Tensor], ParameterState]:
    """What a combined contribution does to a key at the top tier."""
    algorithm, options = worker_sync(plan)
    outer = algorithm.outer_optimizer(options)
    if outer is not None:
        return lambda value: KeyOptimizer(*outer, value)
    optimizer = plan.technique.optimizer
    if MODELS[plan.training.model.kind].takes == SCRIPT:
        return OverwriteUpdate  # unless the script sets an optimizer
    if contribution_of(plan) is Contribution.MODEL or optimizer.options.get("at") == "worker":
        return OverwriteUpdate
    return lambda value: KeyOptimizer(optimizer.kind, optimizer.options, value)


def script_job(plan: Plan, node: NodePlan) -> ScriptJob:
    """What a user's script is told."""
    technique, workers = plan.technique, training_workers(plan)
    codecs = (technique.codec_tier1, technique.codec_tier2)
    return ScriptJob(
        rank=[worker.name for worker in workers].index(node.name),
        workers=len(workers),
        rounds=plan.training.rounds,
        contribution=str(contribution_of(plan)),
        at_server=not (sync_kind(technique.sync_tier1).waits and sync_kind(technique.sync_tier2).waits),
        weight=worker_weight(plan, node),
        local_steps=local_steps(plan)(0),
        differences="difference" in [pull_of(each.kind, each.options) for each in codecs],
        own_codec=_why_no_codec_of_its_own(plan),
    )


def _why_no_codec_of_its_own(plan: Plan) -> str:
    technique = plan.technique
    if technique.codec_tier2.kind != CODECS.default:
        return f"the scenario says 'codec: {technique.codec_tier2.kind}' already"
    if ORDERS[technique.order.kind].best_effort or OVERLAYS[technique.overlay_tier2.kind].relays:
        return f"with '{technique.order.kind}' and '{technique.overlay_tier2.kind}' write it as 'codec' in the scenario"
    if contribution_of(plan) is not Contribution.GRADIENT:
        return f"with '{technique.sync_tier1.kind}' models travel, not gradients; write it as 'codec' in the scenario"
    return ""


def _own_optimizer(optimizer: Choice, learner: Learner) -> ModelOptimizer:
    return ModelOptimizer(optimizer.kind, optimizer.options, learner.values())
