"""What a scenario may write for ``topology``: written out, or by name. A name is written out when it is read.

So the rest of the program, and a run directory, know written-out topologies only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Tag, ValidationError, ValidationInfo

from testbed.errors import ScenarioError
from testbed.scenario.reading.document import parse, plain
from testbed.scenario.reading.problems import problems_of
from testbed.scenario.reading.section import ReadAs
from testbed.scenario.reading.violations import Violation, raise_found
from testbed.scenario.topology.changes import FOR_GRAPHS, UsedTopology, apply_changes
from testbed.scenario.topology.graphs import topology_of
from testbed.scenario.topology.topology import About, Topology
from topologies.readers import GraphReading, read_graph
from topologies.traces.model import TextFile


def _read_file(path: Path, name: str, context: dict[str, Any]) -> Topology:
    """Return a topology in our own YAML, with the keys of a scenario's ``topology``. Raise ``ScenarioError``."""
    root = parse(TextFile.read(path).text, name)
    try:
        return Topology.model_validate(plain(root), context={**context, "folder": path.parent})
    except ValidationError as error:
        raise ScenarioError([str(problem) for problem in problems_of(error, root, Topology)]) from None


def _expand(used: UsedTopology, info: ValidationInfo) -> Topology:
    raise_found(_without_effect(used))
    try:
        base = _from_graph(used) if used.use.is_graph else _read_file(used.use.path, used.use.name, info.context or {})
    except ScenarioError as error:
        raise_found([Violation(("use",), "; ".join(error.problems[:3]))])
        raise
    return apply_changes(base, used)


def _without_effect(used: UsedTopology) -> list[Violation]:
    if used.use.is_graph:
        return []
    return [
        Violation((key,), f"has no effect on '{used.use.name}', which says it itself", "it is for graph files")
        for key in FOR_GRAPHS
        if getattr(used, key) is not None
    ]


def _from_graph(used: UsedTopology) -> Topology:
    reading = GraphReading(
        rate_bps=used.rate, delay_s=used.delay, stretch=used.stretch or 1.5, rate_unit=used.rate_unit,
        sites=used.sites, external=bool(used.external), central=used.central, workers=used.workers or 2,
    )  # fmt: skip
    topology = topology_of(read_graph(used.use.path, reading, used.reader))
    repaired = topology.about.repaired if topology.about else ()
    return topology.model_copy(update={"about": About(title=used.use.name, source=used.use.name, repaired=repaired)})


def _form(value: Any) -> str:
    return "<use>" if isinstance(value, UsedTopology) or (isinstance(value, dict) and "use" in value) else "<written>"


_NAMED = Annotated[UsedTopology, AfterValidator(_expand), Tag("<use>")]
TOPOLOGY = ReadAs(Annotated[_NAMED | Annotated[Topology, Tag("<written>")], Discriminator(_form)])
