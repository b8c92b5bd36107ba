"""What is asked of a Plan again and again, found once: nodes by name and by role.

A run of thousands of nodes asks for each of them; the last few are remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.plan.recent import Recent

if TYPE_CHECKING:
    from testbed.plan.model import NodePlan


@dataclass(frozen=True, slots=True)
class Index:
    """``contributing``: training workers, and the servers they push to."""

    by_name: Mapping[str, NodePlan]
    by_role: Mapping[str, tuple[NodePlan, ...]]
    training: tuple[NodePlan, ...]
    contributing: frozenset[str]


def index_of(nodes: tuple[NodePlan, ...]) -> Index:
    """The index of these nodes."""
    return _indices(nodes)


def _make(nodes: tuple[NodePlan, ...]) -> Index:
    by_role: dict[str, list[NodePlan]] = {}
    for node in nodes:
        by_role.setdefault(node.role, []).append(node)
    by_name = {node.name: node for node in reversed(nodes)}  # of two of one name, the first
    training = tuple(worker for worker in by_role.get("worker", ()) if worker.trains)
    above = {parent for worker in training for parent in worker.parents}
    contributing = frozenset(above.union(worker.name for worker in training))
    return Index(by_name, {role: tuple(found) for role, found in by_role.items()}, training, contributing)


_indices = Recent(_make)
