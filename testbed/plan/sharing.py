"""Puts jobs that were planned separately on one shared network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from testbed.facilities import Facilities
from testbed.plan.faults import by_time
from testbed.plan.jobs import Job, SharedNetwork
from testbed.plan.model import NetworkPlan, NodePlan
from testbed.plan.packets import MOST_PACKETS, packets_of
from testbed.plan.placement import addressed
from testbed.settings.faults import LINK_KINDS
from testbed.settings.run import Simulation


def sharing(jobs: Sequence[Job], shared: SharedNetwork) -> tuple[Job, ...]:
    """Return the jobs on one network, with its links, and with distinct host names and addresses.

    The faults of links are timed from the first start of training. The faults of a job that starts later are timed from
    its own start, so its Plan has the faults of links only in the links' traces.
    """
    found: list[Job] = []
    taken: Counter[str] = Counter()
    simulation = _simulation_of(jobs)
    for job in jobs:
        plan = job.plan
        nodes = _neighbours(plan.nodes, shared.network, taken, plan.facilities)
        own_faults = tuple(fault for fault in plan.faults if fault.kind not in LINK_KINDS)
        plan = replace(
            plan,
            nodes=nodes,
            network=_on(plan.network, shared.network),
            background=shared.background,
            faults=own_faults if job.start_s else by_time((*shared.faults, *own_faults)),
            simulation=simulation or plan.simulation,
        )
        found.append(replace(job, plan=plan, prefix=f"{job.name}." if found else ""))
    return tuple(found)


def _neighbours(
    nodes: Sequence[NodePlan], network: NetworkPlan, taken: Counter[str], facilities: Facilities
) -> tuple[NodePlan, ...]:
    """Return nodes with the next free addresses of their data centres, and count them in ``taken``."""
    index = {site.name: site.index for site in network.sites}
    found = []
    for node in nodes:
        site = node.data_center
        found.append(addressed(node, index[site], taken[site], facilities))
        taken[site] += 1
    return tuple(found)


def _on(own: NetworkPlan, shared: NetworkPlan) -> NetworkPlan:
    """Return a job's network with the links and subnets of the shared one; its data centres are the job's own."""
    sites = {site.name: site for site in shared.sites}
    here = tuple(replace(sites[site.name], central=site.central) for site in own.sites)
    return replace(own, sites=here, links=shared.links)


def _simulation_of(jobs: Sequence[Job]) -> Simulation | None:
    """Return flows as the network model for all jobs, if they chose differently or have too many packets together.

    ``None``: the jobs keep their own choices.
    """
    plans = [job.plan for job in jobs]
    by_packet = [plan.simulation.by_packet for plan in plans]
    if len(jobs) == 1 or not any(by_packet) or not any("default" in plan.simulation.network_reason for plan in plans):
        return None
    packets = sum(map(packets_of, plans))
    if all(by_packet) and packets <= MOST_PACKETS:
        return None
    told = f"by default, as at most {packets:,} packets of {len(jobs)} jobs are predicted, and packets are simulated"
    return replace(plans[0].simulation, network="flows", network_reason=f"{told} up to {MOST_PACKETS:,}")
