"""Where many workers register: at their local server, which registers once for all of them.

The scheduler handles one message after the other. Among thousands of workers, registration and the barrier before
training would take longer than a round: so from ``COLLECTED_NODES`` nodes on, each local server collects both for its
workers, and passes READY and the release on to them. Where nodes may come and go, each registers by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from testbed.plan.model import Plan

COLLECTED_NODES = 200
TRAIN = "train"  # the barrier before training


def collects(plan: Plan) -> bool:
    """Return whether local servers collect the registrations of their workers."""
    return len(plan.nodes) >= COLLECTED_NODES and not plan.faults and plan.recovery.on_failure != "continue"


def collector_of(plan: Plan, name: str) -> str:
    """Return the local server at which a worker registers; the node itself, if it registers at the scheduler."""
    node = plan.node(name)
    if node.role != "worker" or len(node.parents) != 1 or not collects(plan):
        return name
    (parent,) = node.parents
    return parent if plan.node(parent).role == "server" else name


def collected_at(plan: Plan, server: str) -> tuple[str, ...]:
    """Return the workers that register at this node."""
    node = plan.node(server)
    return tuple(child for child in node.children if collector_of(plan, child) == server) if collects(plan) else ()


def training(plan: Plan, names: Iterable[str]) -> tuple[str, ...]:
    """Return those of these nodes that train, and so come to the barrier before training."""
    return tuple(name for name in names if plan.node(name).trains)
