"""Rules of deployments on a cluster."""

from __future__ import annotations

from testbed.scenario.reading.suggest import nearest_or_all
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import Found
from testbed.scenario.schema import Scenario


def machines_are_of_data_centers(scenario: Scenario) -> Found:
    """The names of a generator's data centres are known only in the Plan."""
    if scenario.topology.generator is not None:
        return
    known = [site.name for site in scenario.topology.data_centers]
    for name in scenario.cluster.data_centers:
        if name not in known:
            place = ("cluster", "data_centers", name)
            yield Violation(place, f"there is no data centre '{name}'", nearest_or_all(name, known))


def advertised_nodes_have_ports(scenario: Scenario) -> Found:
    """What translates addresses has to know the ports."""
    for name, site in scenario.cluster.data_centers.items():
        if site.advertise and site.advertise != site.bind and not site.ports:
            place = ("cluster", "data_centers", name, "advertise")
            yield Violation(place, "names an address that is translated, and the ports are not known", "write 'ports'")


def emulation_on_machines_has_a_cluster(scenario: Scenario) -> Found:
    """Both ends of a VXLAN tunnel have the same port and number, so that they cannot be on one machine."""
    if _is_emulated(scenario) and scenario.cluster.address == "loopback":
        problem = "has one machine, and 'emulate' needs one for each part of the network"
        cure = "write the address of a Ray cluster, or emulate on this machine: 'cluster.emulate: false'"
        yield Violation(("cluster", "address"), problem, cure)


def _is_emulated(scenario: Scenario) -> bool:
    return scenario.run.on == "emulate" and scenario.cluster.emulate


def programs_stay_on_one_machine(scenario: Scenario) -> Found:
    if scenario.is_program and (scenario.run.on == "cluster" or _is_emulated(scenario)):
        problem = "starts a program, and on a cluster only the testbed's own nodes are started"
        yield Violation(("workload",), problem, "write 'on: emulate' or 'local', or start the program by the cluster")
