"""The local work of a worker, from the Plan."""

from __future__ import annotations

from testbed.engine import sync_setup
from testbed.engine.aggregation_weights import contribution_weight
from testbed.engine.local_work import LocalOptimizerWork, LocalSteps, LocalWork, OneGradient
from testbed.engine.slicing import optimizer_at_top
from testbed.plan.model import NodePlan, Plan
from testbed.policy.events import Contribution
from testbed.training.learner import Learner
from testbed.training.optimizers import ModelOptimizer


def local_work_of(plan: Plan, node: NodePlan, learner: Learner) -> LocalWork:
    """Return what ``node`` does between two synchronisations."""
    if optimizer_at_top(plan):
        return OneGradient(learner)
    choice, contribution = plan.technique.optimizer, sync_setup.contribution_of(plan)
    optimizer = ModelOptimizer(choice.kind, choice.options, learner.values())
    if contribution is Contribution.GRADIENT:
        return LocalOptimizerWork(learner, optimizer, len(plan.training_workers))
    return LocalSteps(learner, optimizer, contribution, contribution_weight(plan, node))
