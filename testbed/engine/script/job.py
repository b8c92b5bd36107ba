"""What the scenario tells a user's script, from the Plan."""

from __future__ import annotations

from testbed.codec.options import CODECS
from testbed.engine import sync_setup
from testbed.engine.aggregation_weights import contribution_weight
from testbed.kvstore import ScriptJob
from testbed.kvstore.store import pull_of
from testbed.plan.model import NodePlan, Plan
from testbed.policy.events import Contribution
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS


def script_job(plan: Plan, node: NodePlan) -> ScriptJob:
    """Return the job of the script that ``node`` runs."""
    technique, workers = plan.technique, plan.training_workers
    codecs = (technique.codec_tier1, technique.codec_tier2)
    return ScriptJob(
        rank=[worker.name for worker in workers].index(node.name),
        workers=len(workers),
        rounds=plan.training.rounds,
        contribution=str(sync_setup.contribution_of(plan)),
        at_server=not sync_setup.all_wait(plan),
        weight=contribution_weight(plan, node),
        local_steps=sync_setup.local_steps(plan)(0),
        differences="difference" in [pull_of(each.kind, each.options) for each in codecs],
        own_codec=_why_no_codec_of_its_own(plan),
    )


def _why_no_codec_of_its_own(plan: Plan) -> str:
    technique = plan.technique
    if technique.codec_tier2.kind != CODECS.default:
        return f"the scenario says 'codec: {technique.codec_tier2.kind}' already"
    if ORDERS[technique.order.kind].best_effort or OVERLAYS[technique.overlay_tier2.kind].relays:
        return f"with '{technique.order.kind}' and '{technique.overlay_tier2.kind}' write it as 'codec' in the scenario"
    if sync_setup.contribution_of(plan) is not Contribution.GRADIENT:
        return f"with '{technique.sync_tier1.kind}' models travel, not gradients; write it as 'codec' in the scenario"
    return ""
