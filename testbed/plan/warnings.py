"""Settings that have no effect on the chosen back end, or another one than they seem to have: said, not swallowed."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.plan.model import NetworkPlan, NodePlan
from testbed.scenario import Scenario


def warnings_for(
    scenario: Scenario, back_end: str, network: NetworkPlan, nodes: tuple[NodePlan, ...]
) -> tuple[str, ...]:
    """One line each, in a fixed order."""
    return (*_back_end(scenario, back_end, network, nodes), *_detours(network))


def _back_end(scenario: Scenario, back_end: str, network: NetworkPlan, nodes: tuple[NodePlan, ...]) -> Iterator[str]:
    if back_end == "local" and network.links:
        yield "topology.links, topology.lan: have no effect on 'local', for loopback has no WAN"
    if back_end == "simulate":
        for key in ("mac", "unsent_limit"):
            if getattr(scenario.transport, key) != type(scenario.transport).model_fields[key].default:
                yield f"transport.{key}: has no effect on 'simulate', where there are no sockets"
        if any(node.role == "worker" and node.device.pace == "measured" for node in nodes):
            yield "device.pace: 'measured' cannot be simulated; a step takes device.step_time"
    else:
        yield from _measured(nodes)


def _measured(nodes: tuple[NodePlan, ...]) -> Iterator[str]:
    devices = [node.device for node in nodes if node.role == "worker" and node.device.pace == "measured"]
    for key in ("variation", "slowdown"):
        if any(getattr(device, key) for device in devices):
            yield f"device.{key}: has no effect where device.pace is 'measured'; a step takes what it takes"


def _detours(network: NetworkPlan) -> Iterator[str]:
    """Direct links between two sites that the path of least delay does not take."""
    for link in network.links:
        route = network.routes.get(link.name)
        if route is not None and route != (link.name,):
            yield f"link {link.name}: traffic goes {' '.join(route)}, where the delay is less"
