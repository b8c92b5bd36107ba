"""Folding: one coroutine plays all workers of a server that wait for each other anyway, and stands for each of them.

Exact, not approximate: the folded workers' messages are still so many flows of their own sizes, each beginning when its
own worker is done, and the server is told how many contributions it was handed (``tests/simulation/test_fold.py`` holds
it against the unfolded run). It needs workers that cannot be told apart but by how long their steps take: sizes without
numbers, a synchronisation in which all wait for all, codecs whose payload depends on the size alone, no overlay among
them. Where that is not given, nothing is folded.

What is lost is inside the LAN: who of the folded waited for whom. Logs tell how many a node ``stands_for``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from testbed.codec.options import CODECS
from testbed.plan.model import NodePlan, Plan
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.sync import SYNC
from testbed.training.options import MODELS
from testbed.training.options.declarations import SCRIPT


@dataclass(frozen=True, slots=True)
class Folded:
    """``plan`` has one node for each crew: the first of its ``members``, by whose name it goes."""

    plan: Plan
    members: Mapping[str, tuple[NodePlan, ...]] = field(default_factory=dict)


def fold(plan: Plan) -> Folded:
    """The Plan with crews in the place of their members, if it asks for that and nothing but waits is lost."""
    crews = {crew[0].name: tuple(crew) for crew in _crews(plan) if len(crew) > 1} if foldable(plan) else {}
    if not crews:
        return Folded(plan)
    gone = {member.name for crew in crews.values() for member in crew[1:]}
    nodes = tuple(_without(node, gone) for node in plan.nodes if node.name not in gone)
    return Folded(replace(plan, nodes=nodes), crews)


def foldable(plan: Plan) -> bool:
    """Whether workers of this Plan can be told apart by the time of their steps alone."""
    technique = plan.technique
    tiers = {"hips": 2, "ps": 1}.get(technique.paradigm.kind, 0)
    overlay, codec = technique.overlay_tier1, technique.codec_tier1
    if tiers == 1:
        overlay, codec = technique.overlay_tier2, technique.codec_tier2
    return (
        plan.simulation.fold
        and plan.training.compute == "modelled"
        and MODELS[plan.training.model.kind].takes != SCRIPT
        and tiers > 0
        and SYNC[technique.sync_tier1.kind].waits
        and not SYNC[technique.sync_tier1.kind].needs_reports
        and not OVERLAYS[overlay.kind].relays
        and CODECS[codec.kind].size_only
        and not ORDERS[technique.order.kind].best_effort
        and not _steps_in_parts(plan)
        and not plan.checkpoint_every
        and not plan.faults
        and not plan.recovery.replicas
        and plan.simulation.host is None  # whose cores they would share
    )


def _overlaps(plan: Plan) -> bool:
    order = plan.technique.order
    return ORDERS[order.kind].overlaps(ORDERS.options(order.kind, order.options))


def _steps_in_parts(plan: Plan) -> bool:
    """Steps that are pushed layer by layer, by workers that differ: each layer would have an order of its own."""
    return _overlaps(plan) and any(worker.device.variation > 0 for worker in plan.training_workers)


def _crews(plan: Plan) -> list[list[NodePlan]]:
    """Training workers by server; not the run's first one, which evaluates and gives the first values."""
    overlaps = _overlaps(plan)
    crews: dict[object, list[NodePlan]] = {}
    for worker in plan.training_workers:
        if worker.rank > 0 and worker.name != plan.training_workers[0].name:
            alike = worker.device if overlaps else None
            crews.setdefault((worker.data_center, worker.parents, alike), []).append(worker)
    return list(crews.values())


def _without(node: NodePlan, gone: set[str]) -> NodePlan:
    if not gone.intersection(node.children):
        return node
    return replace(node, children=tuple(child for child in node.children if child not in gone))
