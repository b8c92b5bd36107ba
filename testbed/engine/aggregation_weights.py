"""The weight of each contribution in an aggregate.

Servers sum gradients, which nodes push unweighted. Models and deltas are averaged: each node multiplies its
contribution by its share, so that a server only has to add. With two tiers, a worker's share is its share in the mean
over its data centre, and a local server's share is its data centre's share in the mean over all data centres.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from testbed.engine import sync_setup
from testbed.engine.learner import samples_of
from testbed.plan.model import NodePlan, Plan
from testbed.policy.events import Contribution


def contribution_weight(plan: Plan, node: NodePlan) -> float:
    """Return the factor by which ``node`` multiplies its contribution; 1 if the server sums or applies each alone."""
    if sync_setup.contribution_of(plan) is Contribution.GRADIENT:
        return 1.0
    if node.parents and not sync_setup.averages(plan, plan.node(node.parents[0])):
        return 1.0
    weights = _mean_weights(plan)
    if node.role == "server":
        below = [worker.name for worker in plan.training_workers if node.name in worker.parents]
        return math.fsum(weights[name] for name in below) / math.fsum(weights.values())
    if not node.trains:
        return 0.0  # the master worker of a data centre that has no training worker
    siblings = [worker.name for worker in plan.training_workers if worker.parents == node.parents]
    return weights[node.name] / math.fsum(weights[name] for name in siblings)


def weight_inside(plan: Plan, node: NodePlan) -> float:
    """Return the share of a worker in the mean over its data centre."""
    weights = _mean_weights(plan)
    neighbours = [worker.name for worker in plan.training_workers if worker.data_center == node.data_center]
    return weights[node.name] / math.fsum(weights[name] for name in neighbours)


def rescaling(plan: Plan, present: Sequence[str]) -> tuple[list[str], float]:
    """Return the missing training workers, and the factor that scales the others' sum so that it stands for all."""
    names = [worker.name for worker in plan.training_workers]
    there = set(present)
    missing = [name for name in names if name not in there]
    if not missing:
        return [], 1.0
    weights = {name: contribution_weight(plan, plan.node(name)) for name in names}
    return missing, math.fsum(weights.values()) / math.fsum(weights[name] for name in names if name in there)


def aggregation_weights(plan: Plan, server: NodePlan) -> dict[str, float]:
    """Return the weight of each contributing child of ``server``.

    For gradients it is the number of training workers at or below the child, for models and deltas
    ``contribution_weight``. While a member is lost, the server scales up the others' sum by these weights.
    """
    children = sync_setup.contributors(plan, server)
    if sync_setup.contribution_of(plan) is Contribution.GRADIENT:
        workers = plan.training_workers_by_parent
        return {child: float(workers.get(child, 1)) for child in children}
    return {child: contribution_weight(plan, plan.node(child)) for child in children}


def summed_workers(plan: Plan, server: NodePlan) -> dict[str, float]:
    """Return, by contributing child of ``server``, the number of workers whose gradients one of its pushes sums."""
    weights = aggregation_weights(plan, server)
    return {each.name: weights[each.name] / each.pushes_per_round for each in sync_setup.tier_of(plan, server).members}


def _mean_weights(plan: Plan) -> dict[str, float]:
    """Return each training worker's weight in the mean over all, by the option ``weights``; not normalised."""
    algorithm, options = sync_setup.worker_sync(plan)
    workers = plan.training_workers
    rule = algorithm.weights(options)
    if rule == "party":
        sizes = Counter(worker.data_center for worker in workers)
        return {worker.name: 1.0 / sizes[worker.data_center] for worker in workers}
    samples = samples_of(plan) if rule == "sample" else [1] * len(workers)
    return {worker.name: float(count) for worker, count in zip(workers, samples, strict=True)}
