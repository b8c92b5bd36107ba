"""Rules about the size of a run, about names of other sections, and about what TLS covers."""

from __future__ import annotations

from collections import Counter

from testbed.policy.order import ORDERS
from testbed.scenario.paradigms import PARADIGMS
from testbed.scenario.reading.suggest import nearest_or_all
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import Found, kinds, tiers_of
from testbed.scenario.schema import Scenario
from testbed.scenario.topology.topology import Topology

MAX_REAL_NODES = 256
MAX_SIMULATED_WORKERS = 100_000


def node_count(scenario: Scenario) -> Found:
    nodes, on = _count_nodes(scenario.topology), scenario.run.on
    if scenario.is_program:
        nodes = Counter(worker=nodes["worker"])
    if tiers_of(scenario) < 2:
        del nodes["server"]
    if tiers_of(scenario) == 0:
        del nodes["global_server"]
    if on == "simulate" and nodes["worker"] > MAX_SIMULATED_WORKERS:
        yield Violation(
            ("topology",), f"{nodes['worker']} workers in total, limit {MAX_SIMULATED_WORKERS}", "use fewer"
        )
    if on != "simulate" and nodes.total() > MAX_REAL_NODES:
        problem = f"{nodes.total()} nodes in total, limit {MAX_REAL_NODES} with 'on: {on}'"
        yield Violation(("topology",), problem, "use fewer, or 'on: simulate'")


def tls_covers_all_traffic(scenario: Scenario) -> Found:
    if not scenario.transport.tls:
        return
    order, paradigm = scenario.order, scenario.paradigm
    if order.declared.channels(order.options):
        reliable = kinds(ORDERS, lambda order: not order.best_effort)
        problem = f"covers connections, and '{order.kind}' sends datagrams beside them"
        yield Violation(("transport", "tls"), problem, f"write order: {reliable}, or tls: false")
    if paradigm.declared.library:
        own = kinds(PARADIGMS, lambda paradigm: not paradigm.library)
        problem = f"covers our own connections, and '{paradigm.kind}' opens others"
        yield Violation(("transport", "tls"), problem, f"write paradigm: {own}, or tls: false")


def background_ends_exist(scenario: Scenario) -> Found:
    """The names of a generator's data centres are known only in the Plan."""
    if scenario.topology.generator is not None:
        return
    known = [site.name for site in scenario.topology.data_centers]
    for index, traffic in enumerate(scenario.background):
        for key, end in (("from", traffic.source), ("to", traffic.target)):
            if end not in known:
                place, hint = ("background", index, key), nearest_or_all(end, known)
                yield Violation(place, f"no data centre named '{end}'", hint)


def _count_nodes(topology: Topology) -> Counter[str]:
    """Return how many nodes of each role the topology asks for."""
    if topology.generator is not None:
        options = topology.generator.options
        sites = options.data_centers
        return Counter(worker=sites * options.workers, server=sites, global_server=1, scheduler=1)
    centers = topology.data_centers
    workers = sum(site.workers or int(site.central) for site in centers)
    global_servers = sum(site.global_servers or int(site.central) for site in centers)
    return Counter(worker=workers, server=len(centers), global_server=global_servers, scheduler=1)
