"""Nodes by name and by role, computed once per Plan.

A run of thousands of nodes asks for each of them; the last few indices are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from testbed.plan.recent import Recent


class Indexed(Protocol):
    """What an index reads of a node."""

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> str: ...

    @property
    def parents(self) -> tuple[str, ...]: ...

    @property
    def trains(self) -> bool: ...


N = TypeVar("N", bound=Indexed)


@dataclass(frozen=True, slots=True)
class Index(Generic[N]):
    """``contributing``: training workers, and the servers they push to."""

    by_name: Mapping[str, N]
    by_role: Mapping[str, tuple[N, ...]]
    training: tuple[N, ...]
    contributing: frozenset[str]


def index_of(nodes: tuple[N, ...]) -> Index[N]:
    """Return the index of these nodes."""
    index: Index[N] = _indices(nodes)
    return index


def _make(nodes: tuple[N, ...]) -> Index[N]:
    by_role: dict[str, list[N]] = {}
    for node in nodes:
        by_role.setdefault(node.role, []).append(node)
    by_name = {node.name: node for node in reversed(nodes)}  # of two of one name, the first
    training = tuple(worker for worker in by_role.get("worker", ()) if worker.trains)
    parents = {parent for worker in training for parent in worker.parents}
    contributing = frozenset(parents.union(worker.name for worker in training))
    return Index(by_name, {role: tuple(found) for role, found in by_role.items()}, training, contributing)


_indices: Recent[Index] = Recent(_make)  # type: ignore[type-arg]
