"""Several jobs on one network. Each job has an ordinary Plan, and the Plan of the network has the nodes of all jobs.

A job's Plan is the one that it would have alone, except for addresses. Jobs share the network: its links with their
traces and faults, and background traffic. A world makes its network from the Plan of the network, in which node names
are unique: nodes of the first job keep their names, and ``tokyo/worker0`` of a later job ``text`` becomes
``tokyo/text.worker0``. So the network of the first job is the same as if the job were alone, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from testbed.plan.model import FaultPlan, NetworkPlan, NodePlan, Plan
from testbed.settings.run import Background, Exact


@dataclass(frozen=True, kw_only=True)
class SharedNetwork:
    """The network that jobs share. ``faults``: the faults of links, which the links' traces include as well."""

    network: NetworkPlan
    background: tuple[Background, ...] = ()
    faults: tuple[FaultPlan, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job of a run.

    name     the job's name; empty: it is the only job of the run, and uses the run's directory itself
    start_s  when the job's nodes start, in seconds on the run's clock
    prefix   the network's prefix for the names of the job's nodes
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
    """Return the Plan from which a world makes the network of these jobs; for a single job, the job's Plan."""
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
