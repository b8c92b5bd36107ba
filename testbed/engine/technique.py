"""What a Plan's techniques mean for the parts of the engine: who weighs what, which optimizer stands where."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import Tensor

from testbed.engine.kvworker import Slicer
from testbed.engine.learner import samples_of
from testbed.engine.local_work import LocalOptimizerWork, LocalSteps, LocalWork, OneGradient
from testbed.engine.upstream import OverwriteUpdate, ParameterState
from testbed.errors import ScenarioError
from testbed.kvstore import ScriptJob
from testbed.kvstore.store import pull_of
from testbed.plan.index import index_of
from testbed.plan.model import Choice, NodePlan, Plan
from testbed.policy.events import Contribution, SyncPolicy
from testbed.policy.order import ORDERS
from testbed.policy.order.fifo import Fifo
from testbed.policy.shard import SHARDS
from testbed.policy.shard.slices import Slice
from testbed.policy.sync import SYNC
from testbed.policy.sync.asynchronous import Tap
from testbed.policy.sync.ssp import Ssp
from testbed.training.learner import Learner
from testbed.training.optimizers import KeyOptimizer, ModelOptimizer


def training_workers(plan: Plan) -> tuple[NodePlan, ...]:
    """Workers that contribute, in rank order."""
    return plan.training_workers


def contribution_of(plan: Plan) -> Contribution:
    """What workers push: the algorithm that they face decides."""
    contribution: Contribution = SYNC[plan.technique.sync_tier1.kind].contribution
    return contribution


def worker_options(plan: Plan) -> Any:
    """Options of the synchronisation algorithm that workers face."""
    choice = plan.technique.sync_tier1
    return SYNC[choice.kind].Options(**choice.options)


def sync_policy(plan: Plan, node: NodePlan) -> SyncPolicy:
    """The policy of one server, over the children that contribute."""
    choice = plan.technique.sync_tier1 if node.role == "server" else plan.technique.sync_tier2
    kind, members = SYNC[choice.kind], contributors(plan, node)
    policy: SyncPolicy = kind(members, kind.Options(**choice.options))
    if isinstance(policy, Ssp | Tap) and node.role == "global_server" and is_asynchronous(plan.technique.sync_tier1):
        workers = Counter(parent for worker in training_workers(plan) for parent in worker.parents)
        policy.count_pushes({member: workers.get(member, 1) for member in members})
    return policy


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
    workers, rule = training_workers(plan), worker_options(plan).weights
    if rule == "party":
        sizes = Counter(worker.data_center for worker in workers)
        return {worker.name: 1.0 / sizes[worker.data_center] for worker in workers}
    samples = samples_of(plan) if rule == "sample" else [1] * len(workers)
    return {worker.name: float(count) for worker, count in zip(workers, samples, strict=True)}


def order(plan: Plan) -> Fifo:
    """Which slice goes next."""
    choice = plan.technique.order
    kind = ORDERS[choice.kind]
    chosen: Fifo = kind(kind.Options(**choice.options))
    return chosen


def slicer(plan: Plan) -> Slicer:
    """Where keys live: placed by the shard axis, cut further by the order axis. Raises ``ScenarioError``."""
    kind = SHARDS[plan.technique.shard.kind]
    shard, cutter = kind(kind.Options(**plan.technique.shard.options)), order(plan)
    optimizer, contribution = plan.technique.optimizer, contribution_of(plan)
    at_top = contribution is Contribution.GRADIENT and optimizer.options.get("at") != "worker"

    def slices(sizes: tuple[int, ...], servers: int) -> tuple[Slice, ...]:
        found = cutter.cut(shard.slices(sizes, servers))
        if at_top and optimizer.kind == "lars" and len(found) > len(sizes):
            raise ScenarioError(
                "optimizer: LARS takes norms of whole tensors, and here servers update slices of them; "
                "write 'at: worker', 'order: fifo', or a larger bound for 'shard'"
            )
        return found

    return slices


def is_asynchronous(choice: Choice) -> bool:
    """Whether members of a tier do not wait for each other in every round."""
    return choice.kind in ("tap", "ssp", "mixedsync")


def local_work(plan: Plan, node: NodePlan, learner: Learner) -> LocalWork:
    """What a worker does between two synchronisations."""
    optimizer, contribution = plan.technique.optimizer, contribution_of(plan)
    if contribution is Contribution.GRADIENT:
        if optimizer.options.get("at") != "worker":
            return OneGradient(learner)
        return LocalOptimizerWork(learner, _own_optimizer(optimizer, learner), len(training_workers(plan)))
    return LocalSteps(learner, _own_optimizer(optimizer, learner), contribution, worker_weight(plan, node))


def first_steps(plan: Plan) -> int:
    """Local steps of a worker's first round."""
    return getattr(worker_options(plan), "local_steps", 1)


def rounds_across(plan: Plan) -> int:
    """Every so many rounds of a worker, what it pushes goes all the way up."""
    return getattr(worker_options(plan), "k2", 1)


def top_key(plan: Plan) -> Callable[[Tensor], ParameterState]:
    """What a combined contribution does to a key at the top tier."""
    outer = getattr(worker_options(plan), "outer", None)
    if outer is not None:
        kind, options = outer
        return lambda value: KeyOptimizer(kind, options, value)
    optimizer = plan.technique.optimizer
    if plan.training.model.kind == "script":
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
        at_server=is_asynchronous(technique.sync_tier1) or is_asynchronous(technique.sync_tier2),
        weight=worker_weight(plan, node),
        local_steps=first_steps(plan),
        differences="difference" in [pull_of(each.kind, each.options) for each in codecs],
        own_codec=_why_no_codec_of_its_own(plan),
    )


def _why_no_codec_of_its_own(plan: Plan) -> str:
    technique = plan.technique
    if technique.codec_tier2.kind != "none":
        return f"the scenario says 'codec: {technique.codec_tier2.kind}' already"
    if technique.order.kind == "dgt" or technique.overlay_tier2.kind != "star":
        return f"with '{technique.order.kind}' and '{technique.overlay_tier2.kind}' write it as 'codec' in the scenario"
    if contribution_of(plan) is not Contribution.GRADIENT:
        return f"with '{technique.sync_tier1.kind}' models travel, not gradients; write it as 'codec' in the scenario"
    return ""


def _own_optimizer(optimizer: Choice, learner: Learner) -> ModelOptimizer:
    return ModelOptimizer(optimizer.kind, optimizer.options, learner.values())
