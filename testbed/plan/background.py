"""The background traffic of a Plan."""

from __future__ import annotations

import math

from testbed.errors import ScenarioError
from testbed.ids import link_name
from testbed.plan.model import BackgroundPlan, NetworkPlan
from testbed.scenario import Scenario
from testbed.scenario.sections.background import Background


def build_background(scenario: Scenario, network: NetworkPlan) -> tuple[BackgroundPlan, ...]:
    """Return one entry each, with a seed of its own. Raise ``ScenarioError`` if no path joins the ends."""
    found = []
    for index, traffic in enumerate(scenario.background):
        if not _is_path(scenario, network, traffic):
            ends = f"'{traffic.source}' to '{traffic.target}'"
            where = scenario.place_of("background", index)
            raise ScenarioError(f"{where}: background[{index}]: the network has no path from {ends}")
        if traffic.kind == "tcp" and scenario.run.on == "simulate":
            cure = "use constant or on_off traffic, or 'on: emulate'"
            where = scenario.place_of("background", index)
            raise ScenarioError(f"{where}: background[{index}]: tcp traffic cannot be simulated ({cure})")
        planned = BackgroundPlan(
            kind=traffic.kind, source=traffic.source, target=traffic.target, rate_bps=traffic.rate or 0.0,
            on_s=traffic.on, off_s=traffic.off, streams=traffic.streams or scenario.transport.parallel_streams,
            start_s=traffic.start, stop_s=math.inf if traffic.stop is None else traffic.stop,
            seed=f"{scenario.seed}/background/{index}",
        )  # fmt: skip
        found.append(planned)
    return tuple(found)


def _is_path(scenario: Scenario, network: NetworkPlan, traffic: Background) -> bool:
    """Return whether a path joins the ends. A Plan of very many sites has few routes; the virtual world finds more."""
    if scenario.run.on == "simulate":
        return {traffic.source, traffic.target} <= {site.name for site in network.sites}  # which all reach each other
    return link_name(traffic.source, traffic.target) in network.routes
