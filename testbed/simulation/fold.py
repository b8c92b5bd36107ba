"""Folding: one coroutine runs for all workers of a server that wait for each other anyway.

It is exact: the folded workers' messages are still flows of their own sizes, each beginning when its worker's steps are
done, and the server is told how many contributions a message carries (``tests/simulation/test_fold.py`` compares with
the unfolded run). It requires workers that differ in nothing but the duration of their steps: sizes without numbers, a
synchronisation in which all wait for all, codecs whose payload depends on the size alone, one server each, no overlay
and no sums among them. Otherwise nothing is folded.

What gets lost is which of the folded workers waited for which, inside the LAN. The ``start`` event of a folded node
says how many workers it ``stands_for``.
"""

from __future__ import annotations

from dataclasses import replace

from testbed.codec.options import CODECS
from testbed.plan.asynchronous import shares_rounds
from testbed.plan.model import NodePlan, Plan
from testbed.policy.collective.options import inside_of
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.sync import SYNC
from testbed.training.options import MODELS
from testbed.training.options.declarations import SCRIPT


def fold(plan: Plan) -> tuple[Plan, dict[str, tuple[NodePlan, ...]]]:
    """Return the Plan with one node for each worker group, its first worker, and the whole groups by that name.

    That is the Plan unchanged, and no groups, if it is not ``foldable``.
    """
    groups = {group[0].name: tuple(group) for group in _groups(plan) if len(group) > 1} if foldable(plan) else {}
    if not groups:
        return plan, {}
    folded = {worker.name for group in groups.values() for worker in group[1:]}
    nodes = tuple(_without(node, folded) for node in plan.nodes if node.name not in folded)
    return replace(plan, nodes=nodes), groups


def foldable(plan: Plan) -> bool:
    """Whether folding is asked for and workers of this Plan differ in nothing but the duration of their steps."""
    technique = plan.technique
    tiers = bool(plan.with_role("global_server")) + bool(plan.with_role("server"))
    overlay = technique.overlay_tier1
    codec = technique.codec_tier1
    if tiers == 1:
        overlay = technique.overlay_tier2
        codec = technique.codec_tier2
    return (
        plan.simulation.fold
        and plan.training.compute == "modelled"
        and MODELS[plan.training.model.kind].takes != SCRIPT
        and tiers > 0
        and all(len(worker.parents) <= 1 for worker in plan.training_workers)  # else several flows share its own port
        and inside_of(technique.paradigm.options) is None
        and SYNC[technique.sync_tier1.kind].waits
        and not shares_rounds(plan)  # the budget of such a run counts every worker
        and not SYNC[technique.sync_tier1.kind].needs_reports
        and not OVERLAYS[overlay.kind].relays
        and CODECS[codec.kind].size_only
        and not ORDERS[technique.order.kind].best_effort
        and not _steps_in_parts(plan)
        and not plan.checkpoint_every
        and not plan.faults
        and not plan.recovery.replicas
        and plan.pipeline is None
        and not plan.simulation.by_packet  # each worker has a port of its own
    )


def _overlaps(plan: Plan) -> bool:
    order = plan.technique.order
    return ORDERS[order.kind].overlaps(ORDERS.options(order.kind, order.options))


def _steps_in_parts(plan: Plan) -> bool:
    """Whether workers that differ push layer by layer: each layer would arrive in an order of its own."""
    return _overlaps(plan) and any(worker.device.variation > 0 for worker in plan.training_workers)


def _groups(plan: Plan) -> list[list[NodePlan]]:
    """Training workers by server, without the run's first one, which evaluates and provides the first values."""
    overlaps = _overlaps(plan)
    groups: dict[object, list[NodePlan]] = {}
    for worker in plan.training_workers:
        if worker.rank > 0 and worker.name != plan.training_workers[0].name:
            same_device = worker.device if overlaps else None
            groups.setdefault((worker.data_center, worker.parents, same_device), []).append(worker)
    return list(groups.values())


def _without(node: NodePlan, folded: set[str]) -> NodePlan:
    if not folded.intersection(node.children):
        return node
    return replace(node, children=tuple(child for child in node.children if child not in folded))
