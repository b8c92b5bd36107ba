"""Rules of deployments on a cluster."""

from __future__ import annotations

from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import Found
from testbed.scenario.schema import Scenario
from testbed.suggest import nearest_or_all


def machines_are_of_data_centers(scenario: Scenario) -> Found:
    """Names of a generated topology's data centres are checked later, as only the Plan has them."""
    known = [site.name for site in scenario.topology.data_centers]
    for name in scenario.cluster.data_centers if scenario.topology.generator is None else ():
        if name not in known:
            problem = f"there is no data centre '{name}'"
            yield Violation(("cluster", "data_centers", name), problem, nearest_or_all(name, known))


def machines_can_be_reached(scenario: Scenario) -> Found:
    for name, site in scenario.cluster.data_centers.items():
        if site.advertise and site.advertise != site.bind and not site.ports:  # address translation needs known ports
            place = ("cluster", "data_centers", name, "advertise")
            yield Violation(place, "names a translated address, but the ports behind it are unknown", "write 'ports'")
