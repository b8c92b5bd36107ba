"""Several jobs on one network: ordinary Plans, and the Plan of the network, which has the nodes of all jobs.

A job's Plan is the one that it would have alone, but for addresses. What jobs share is the network: links with their
traces and faults, and background traffic. A world makes its network from the Plan of the network, in which no two nodes
have one name: nodes of the first job keep theirs, and ``tokyo/worker0`` of a later job ``text`` is
``tokyo/text.worker0``. So the first job's network is the one that it has alone, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from testbed.plan.model import FaultPlan, NetworkPlan, NodePlan, Plan
from testbed.settings.run import Background, Exact


@dataclass(frozen=True, kw_only=True)
class SharedNetwork:
    """What jobs share. ``faults``: those of links, which are also in the links' traces."""

    network: NetworkPlan
    background: tuple[Background, ...] = ()
    faults: tuple[FaultPlan, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job of a run.

    name     its own; empty: it is the run's only one, and the run's directory is its own
    start_s  when its nodes start, in seconds of the run
    prefix   what the network puts before the names of its nodes
    """

    plan: Plan
    name: str = ""
    start_s: float = 0.0
    prefix: str = ""

    def host(self, node: str) -> str:
        """Return the name by which the network knows a node: ``tokyo/text.worker0`` for ``tokyo/worker0``."""
        site, _, own = node.partition("/")
        return f"{site}/{self.prefix}{own}"


def plan_of_network(jobs: Sequence[Job], network: NetworkPlan) -> Plan:
    """Return the Plan from which a world makes the network of these jobs; of one job it is its own."""
    first = jobs[0].plan
    if len(jobs) == 1:
        return first
    channels = max(job.plan.transport.best_effort_channels for job in jobs)
    return replace(
        first,
        network=network,
        nodes=tuple(_as_host(job, node) for job in jobs for node in job.plan.nodes),
        transport=replace(first.transport, best_effort_channels=channels),
        exact=_exact_of(jobs),
    )


def _as_host(job: Job, node: NodePlan) -> NodePlan:
    parents = tuple(map(job.host, node.parents))
    children = tuple(map(job.host, node.children))
    return replace(node, name=job.host(node.name), parents=parents, children=children)


def _exact_of(jobs: Sequence[Job]) -> Exact | None:
    """Return the kernel of an exact run, with memory for the nodes of all jobs."""
    first = jobs[0].plan.exact
    return first and replace(first, memory_bytes=sum(job.plan.exact.memory_bytes for job in jobs if job.plan.exact))
