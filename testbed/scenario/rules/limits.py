"""Rules about the topology: the number of nodes of a run, and the data centres that background traffic names."""

from __future__ import annotations

from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import Found, tiers_of
from testbed.scenario.schema import Scenario
from testbed.suggest import nearest_or_all

MAX_REAL_NODES = 256
MAX_SIMULATED_WORKERS = 100_000


def node_count(scenario: Scenario) -> Found:
    workers, nodes = _count_nodes(scenario)
    has_processes = scenario.run.facilities.has_processes
    if not has_processes and workers > MAX_SIMULATED_WORKERS:
        yield Violation(("topology",), f"{workers} workers in total, limit {MAX_SIMULATED_WORKERS}", "use fewer")
    if has_processes and nodes > MAX_REAL_NODES:
        problem = f"{nodes} nodes in total, limit {MAX_REAL_NODES} with 'on: {scenario.run.on}'"
        yield Violation(("topology",), problem, "use fewer, or 'on: simulate'")


def _count_nodes(scenario: Scenario) -> tuple[int, int]:
    """Return the number of workers, and of nodes in all roles, that the Plan will have."""
    if scenario.topology.generator is not None:
        options = scenario.topology.generator.options
        workers = [options.workers] * options.data_centers
        global_servers = 1
    else:
        sites = scenario.topology.data_centers
        workers = [site.workers or int(site.central and not scenario.is_program) for site in sites]
        global_servers = sum(site.global_servers or int(site.central) for site in sites)
    if scenario.workload is not None and scenario.is_program:
        processes = sum(map(bool, workers)) if scenario.workload.per == "host" else sum(workers)
        return processes, processes
    tiers = tiers_of(scenario)
    servers = len(workers) * (tiers == 2) + (global_servers + scenario.recovery.replicas) * (tiers > 0)
    return sum(workers), sum(workers) + servers + 1  # the scheduler


def background_ends_exist(scenario: Scenario) -> Found:
    """Names of a generated topology's data centres are checked later, as only the Plan has them."""
    known = [site.name for site in scenario.topology.data_centers]
    for index, traffic in enumerate(scenario.background if scenario.topology.generator is None else ()):
        for key, end in (("from", traffic.source), ("to", traffic.target)):
            if end not in known:
                problem = f"no data centre named '{end}'"
                yield Violation(("background", index, key), problem, nearest_or_all(end, known))
