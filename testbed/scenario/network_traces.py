"""One CSV file with traces for many links, put onto the links when the scenario is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationInfo

from testbed.errors import ScenarioError
from testbed.scenario.files import beside
from testbed.scenario.one_way import joined, one_way
from testbed.scenario.quantities import refuse
from testbed.scenario.traces import written_out
from topologies.traces import NetworkTraces, read_network_traces

if TYPE_CHECKING:
    from testbed.scenario.network import Topology


def with_network_traces(topology: Topology, info: ValidationInfo) -> Topology:
    """The topology with the traces of its file on its links; ``traces`` itself is then empty."""
    if topology.traces is None:
        return topology
    if topology.generator is not None:
        raise refuse(
            "'traces' has no effect beside 'generator'", "write the links out: testbed topology NAME --yaml FILE"
        )
    try:
        read = read_network_traces(beside(topology.traces, info))
    except ScenarioError as error:
        raise refuse(f"traces: {error}") from error
    links = {(link.source, link.target): link for entry in topology.links for link in one_way(entry)}
    for source, target, what in read.traces:
        if (source, target) not in links:
            problem = f"traces: {read.name}: no link from '{source}' to '{target}'"
            raise refuse(problem, "its columns src and dst must name the ends of links")
        changed = {f"{what}_trace": _section(read, (source, target, what))}
        links[source, target] = links[source, target].model_copy(update=changed)
    return topology.model_copy(update={"traces": None, "links": joined(links.values())})


def _section(read: NetworkTraces, key: tuple[str, str, str]) -> Any:
    """It starts again at its end, for such files are short excerpts."""
    trace = read.traces[key]
    return written_out(trace, read.name, trace.length_s if len(trace.times_s) > 1 else None)
