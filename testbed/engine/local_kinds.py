"""Chooses a node's local work by the Plan's synchronisation algorithm and optimizer."""

from __future__ import annotations

from torch import Tensor

from testbed.engine import sync_setup
from testbed.engine.aggregation_weights import contribution_weight
from testbed.engine.lagging import Lagging, LaggingOptimizerWork
from testbed.engine.local_work import LocalOptimizerWork, LocalSteps, LocalWork, OneGradient
from testbed.engine.slicing import optimizer_at_top
from testbed.engine.streaming import StreamedSteps
from testbed.plan.model import NodePlan, Plan
from testbed.policy.events import Contribution
from testbed.training.learner import Learner
from testbed.training.optimizers import ModelOptimizer


def local_work_of(plan: Plan, node: NodePlan, learner: Learner) -> LocalWork:
    """Return the local work of ``node`` between two synchronisations with servers."""
    lags = sync_setup.lags(plan)
    staleness = sync_setup.staleness(plan)
    if optimizer_at_top(plan):
        return Lagging(learner, staleness=staleness) if lags else OneGradient(learner)
    choice = plan.technique.optimizer
    contribution = sync_setup.contribution_of(plan)
    if contribution is Contribution.GRADIENT:
        optimizer = ModelOptimizer(choice.kind, choice.options, learner.values(), learner.shapes)
        workers = len(plan.training_workers)
        if lags:
            return LaggingOptimizerWork(learner, optimizer, workers, staleness=staleness)
        return LocalOptimizerWork(learner, optimizer, workers)
    return _local_steps(plan, learner, learner.values(), contribution, contribution_weight(plan, node))


def serverless_work(plan: Plan, learner: Learner, values: list[Tensor]) -> LocalWork:
    """Return the local work of a worker between two exchanges with other workers, from its first ``values`` on.

    Its result is a gradient, or the change of the model by local steps. Workers then step along the exchanged result
    with the optimizer ``sync_setup.stepped_with``.
    """
    if sync_setup.contribution_of(plan) is Contribution.GRADIENT:
        return OneGradient(learner)
    return _local_steps(plan, learner, values, Contribution.DELTA, 1.0)


def _local_steps(
    plan: Plan, learner: Learner, values: list[Tensor], contribution: Contribution, weight: float
) -> LocalSteps:
    choice = plan.technique.optimizer
    streaming = sync_setup.streaming(plan)
    optimizer = ModelOptimizer(choice.kind, choice.options, values, learner.shapes)
    if streaming is not None:
        return StreamedSteps(learner, optimizer, weight, streaming)
    return LocalSteps(learner, optimizer, contribution, weight)
