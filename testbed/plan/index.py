"""What is asked of a Plan again and again, found once: nodes by name and by role.

A run of thousands of nodes asks for each of them. Plans never change, so what was found once holds as long as the very
same tuple of nodes is asked about; the last few are remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.plan.model import NodePlan

_REMEMBERED = 4


@dataclass(frozen=True, slots=True)
class Index:
    """``nodes`` is the tuple that was looked at. ``contributing``: training workers, and the servers they push to."""

    nodes: tuple[NodePlan, ...]
    by_name: Mapping[str, NodePlan]
    by_role: Mapping[str, tuple[NodePlan, ...]]
    training: tuple[NodePlan, ...]
    contributing: frozenset[str]


_recent: list[Index] = []


def index_of(nodes: tuple[NodePlan, ...]) -> Index:
    """The index of these nodes."""
    for index in _recent:
        if index.nodes is nodes:
            return index
    index = _make(nodes)
    _recent.insert(0, index)
    del _recent[_REMEMBERED:]
    return index


def _make(nodes: tuple[NodePlan, ...]) -> Index:
    by_role: dict[str, list[NodePlan]] = {}
    for node in nodes:
        by_role.setdefault(node.role, []).append(node)
    by_name = {node.name: node for node in reversed(nodes)}  # of two of one name, the first
    training = tuple(worker for worker in by_role.get("worker", ()) if worker.trains)
    above = {parent for worker in training for parent in worker.parents}
    contributing = frozenset(above.union(worker.name for worker in training))
    return Index(nodes, by_name, {role: tuple(found) for role, found in by_role.items()}, training, contributing)
