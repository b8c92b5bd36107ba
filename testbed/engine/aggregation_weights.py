"""What each contribution counts for in an aggregate.

Gradients are summed: every one is pushed as it is. Models and deltas are averaged: every node multiplies what it pushes
by its share, so that a server needs only to add. With two tiers a worker's share is one of its data centre's mean, and
a data centre's share one of the mean over all.
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
    """Return the factor by which ``node`` multiplies what it pushes; 1 where it is summed, or applied by itself."""
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
    """Return the training workers that are missing, and the factor by which the others' sum stands for all."""
    names = [worker.name for worker in plan.training_workers]
    there = set(present)
    missing = [name for name in names if name not in there]
    if not missing:
        return [], 1.0
    weights = {name: contribution_weight(plan, plan.node(name)) for name in names}
    return missing, math.fsum(weights.values()) / math.fsum(weights[name] for name in names if name in there)


def aggregation_weights(plan: Plan, server: NodePlan) -> dict[str, float]:
    """Return what each contributing child counts for at ``server``.

    Gradients count by the training workers at or below the child, models and deltas by ``contribution_weight``. While
    a member is lost, the sum of the others is scaled up by these weights (``MembershipView.rescaling``).
    """
    children = sync_setup.contributors(plan, server)
    if sync_setup.contribution_of(plan) is Contribution.GRADIENT:
        workers = plan.training_workers_by_parent
        return {child: float(workers.get(child, 1)) for child in children}
    return {child: contribution_weight(plan, plan.node(child)) for child in children}


def summed_workers(plan: Plan, server: NodePlan) -> dict[str, float]:
    """Return how many workers' gradients one push of each contributing child of ``server`` sums."""
    weights = aggregation_weights(plan, server)
    return {each.name: weights[each.name] / each.pushes_per_round for each in sync_setup.tier_of(plan, server).members}


def _mean_weights(plan: Plan) -> dict[str, float]:
    """Return what every training worker counts for in the mean over all, by the option ``weights``; not normalised."""
    algorithm, options = sync_setup.worker_sync(plan)
    workers = plan.training_workers
    rule = algorithm.weights(options)
    if rule == "party":
        sizes = Counter(worker.data_center for worker in workers)
        return {worker.name: 1.0 / sizes[worker.data_center] for worker in workers}
    samples = samples_of(plan) if rule == "sample" else [1] * len(workers)
    return {worker.name: float(count) for worker, count in zip(workers, samples, strict=True)}
