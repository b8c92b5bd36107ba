"""Folding: one coroutine runs for all workers of a server that wait for each other anyway.

Folding is exact. The folded workers' messages are still flows of their own sizes, each beginning when its worker's
steps are done, and each message says how many contributions it carries (``tests/simulation/test_fold.py`` compares with
the unfolded run). The workers may differ only in the duration of their steps. So folding requires modelled computation,
a synchronisation in which all wait for all, codecs whose payload size depends only on the tensor size, one server per
worker, no overlay, and no sums among workers. Otherwise nothing is folded.

A folded run does not record which of the folded workers waited for which inside the LAN. The ``start`` event of a
folded node says how many workers it ``stands_for``.
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
    """Return the Plan with only the first worker of each worker group, and the whole groups by that worker's name.

    If the Plan is not ``foldable``, return it unchanged, and no groups.
    """
    groups = {group[0].name: tuple(group) for group in _groups(plan) if len(group) > 1} if foldable(plan) else {}
    if not groups:
        return plan, {}
    folded = {worker.name for group in groups.values() for worker in group[1:]}
    nodes = tuple(_without(node, folded) for node in plan.nodes if node.name not in folded)
    return replace(plan, nodes=nodes), groups


def foldable(plan: Plan) -> bool:
    """Whether the Plan asks for folding, and its workers differ only in the duration of their steps."""
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
        and all(len(worker.parents) <= 1 for worker in plan.training_workers)  # else several flows share one port
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
        and not plan.simulation.by_packet  # packets need a port for each worker
    )


def _overlaps(plan: Plan) -> bool:
    order = plan.technique.order
    return ORDERS[order.kind].overlaps(ORDERS.options(order.kind, order.options))


def _steps_in_parts(plan: Plan) -> bool:
    """Whether workers of different speed push layer by layer, so that the layers' orders of arrival may differ."""
    return _overlaps(plan) and any(worker.device.variation > 0 for worker in plan.training_workers)


def _groups(plan: Plan) -> list[list[NodePlan]]:
    """Group the training workers by server, without the run's first one, which evaluates and gives first values."""
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
