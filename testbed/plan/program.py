"""A user's program in a Plan: the nodes of its processes, and the commands that start them."""

from __future__ import annotations

from dataclasses import replace

from testbed.errors import ScenarioError
from testbed.ids import node_name
from testbed.plan.model import NodePlan, ProgramPlan
from testbed.plan.placement import addressed
from testbed.scenario import Scenario
from testbed.scenario.topology.topology import Topology


def build_program_nodes(scenario: Scenario, topology: Topology) -> tuple[NodePlan, ...]:
    """Return one node per process. Ranks follow the order of the data centres."""
    assert scenario.workload is not None
    nodes: list[NodePlan] = []
    for index, site in enumerate(topology.data_centers):
        names = [node_name(site.name, "worker", number) for number in range(site.workers)]
        if scenario.workload.per == "host":
            names = [node_name(site.name, "host")] * bool(names)
        for host, name in enumerate(names):
            node = NodePlan(name=name, role="worker", data_center=site.name, rank=len(nodes))
            nodes.append(replace(addressed(node, index, host, scenario.run.on), port=0))
    return tuple(nodes)


def program_of(scenario: Scenario, topology: Topology) -> ProgramPlan | None:
    """Return the program that the scenario's workload names; ``None`` unless it is a command.

    Raise ``ScenarioError`` if its run would wait for no process.
    """
    workload = scenario.workload
    if workload is None or not workload.is_program:
        return None
    counts = [site.workers for site in topology.data_centers if site.workers]
    workers = tuple(counts if workload.per == "host" else [1] * sum(counts))
    if workload.ends == "others" and len(workers) == 1:
        raise ScenarioError(
            "workload.ends: no process but the first is started, as the topology has one "
            f"{'data centre with workers' if workload.per == 'host' else 'worker'}; write 'ends: all'"
        )
    return ProgramPlan(
        command=workload.command, first=workload.first, ends=workload.ends, listens=workload.listens or 0,
        workers=workers, env=dict(workload.env),
        cwd=workload.cwd or "", timeout_s=workload.timeout, metrics=workload.metrics or "",
        sha256=workload.sha256 or "",
    )  # fmt: skip
