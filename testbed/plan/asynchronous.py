"""Whether workers wait for each other, which the technique declares, and therefore what ``training.rounds`` counts."""

from __future__ import annotations

import math

from testbed.plan.model import Plan
from testbed.policy.gossip import ALGORITHMS
from testbed.policy.sync import SYNC
from testbed.training.options import MODELS
from testbed.training.options.declarations import SCRIPT


def is_asynchronous(plan: Plan) -> bool:
    """Return whether some workers do not wait for each other, so that fast ones make more rounds than slow ones."""
    technique = plan.technique
    if plan.with_role("global_server"):
        return not all(SYNC[choice.kind].waits for choice in (technique.sync_tier1, technique.sync_tier2))
    gossip = ALGORITHMS.get(technique.paradigm.options.get("algorithm", ""))
    return gossip is not None and gossip.pairwise


def shares_rounds(plan: Plan) -> bool:
    """Return whether ``training.rounds`` is a mean over the workers, as fast workers make more rounds than slow ones.

    This never holds for a script, which makes the steps of its own loop.
    """
    return is_asynchronous(plan) and MODELS[plan.training.model.kind].takes != SCRIPT


def rounds_of_each(plan: Plan) -> float:
    """Return the most rounds that a worker makes: infinity if ``training.rounds`` is a mean over the workers."""
    return math.inf if shares_rounds(plan) else plan.training.rounds


def is_scored_at_top(plan: Plan) -> bool:
    """Return whether a global server evaluates the model, because no worker has the newest model."""
    return shares_rounds(plan) and bool(plan.with_role("global_server"))
