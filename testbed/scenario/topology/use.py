"""``topology: {use: hmc4, …}``: a built-in or a file, and what differs from it.

Beside ``use``, ``data_centers`` and ``links`` are changes to the named topology, by name and by ends. A name is written
out when it is read. So the rest of the program, and a run directory, know written-out topologies only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, Tag, ValidationError, ValidationInfo

from testbed.errors import ScenarioError
from testbed.scenario.reading.axes import kind_of
from testbed.scenario.reading.document import parse, plain
from testbed.scenario.reading.files import beside
from testbed.scenario.reading.problems import problems_of
from testbed.scenario.reading.quantities import BOOLEAN, DELAY, NAME, RATE, integer, number, one_of, refuse, text_of
from testbed.scenario.reading.section import NULLABLE, ReadAs, Section
from testbed.scenario.reading.suggest import suggestion
from testbed.scenario.reading.violations import Violation, raise_found
from testbed.scenario.topology.changes import apply_changes
from testbed.scenario.topology.graphs import topology_of
from testbed.scenario.topology.links import LINK_CHANGE, LinkEnds, SiteName
from testbed.scenario.topology.sites import SITE_CHANGE, Lan, NamedSite
from testbed.scenario.topology.topology import About, Topology
from topologies.library import BUILT_IN, topology_path
from topologies.readers import READERS, GraphReading, endings, read_graph
from topologies.readers.options import RATE_UNITS
from topologies.traces.model import TextFile

_FACTOR = number(1e-6, 1e6)
_YAML = (".yaml", ".yml")
FOR_GRAPHS = ("reader", "rate", "delay", "stretch", "rate_unit", "external")


@dataclass(frozen=True)
class Used:
    """What ``use`` means: the file, and whether it is a graph without the keys of a scenario."""

    name: str
    path: Path
    is_graph: bool


def _read_use(value: Any, info: ValidationInfo) -> Used:
    if isinstance(value, Used):
        return value
    name = text_of(value)
    if name in BUILT_IN:
        return Used(name, topology_path(name), False)
    ending = Path(name).suffix.lower()
    if not ending:
        raise refuse(f"'{name}' is no built-in topology", suggestion(name, BUILT_IN) or f"one of {', '.join(BUILT_IN)}")
    is_graph = info.data.get("reader") is not None or ending in endings()
    if not is_graph and ending not in _YAML:
        known = f"one of {', '.join((*endings(), *_YAML))}, or name a 'reader'"
        raise refuse(f"'{ending}' is no ending of a topology file", known)
    path = beside(name, info)
    if not path.is_file():
        raise refuse(f"{name}: no such file")
    return Used(name, path, is_graph)


class UsedTopology(Section):
    """A built-in topology or a file, and what differs from it."""

    reader: kind_of(READERS) = None  # type: ignore[valid-type]
    """Graph files: what reads the file, a kind or ./FILE.py:Class; by default by the file's ending."""
    use: Annotated[Any, BeforeValidator(_read_use)]
    """A built-in (testbed topology lists them), or a .yaml, .graphml, .gml or SNDlib .xml file beside the scenario."""
    central: Annotated[str | None, NAME] = None
    """The data centre of the global servers, instead of the file's own."""
    workers: Annotated[int | None, integer(1, 1000)] = None
    """Workers in every data centre."""
    sites: tuple[SiteName, ...] | None = None
    """The vertices that are data centres; others remain as routers where a path passes them."""
    scale: Annotated[float, _FACTOR] = 1.0
    """Divides all rates and queues in bytes, so that two cores suffice. Divide the model's size as well."""
    speed: Annotated[float, _FACTOR] = 1.0
    """Divides the times of all traces: 180 makes three minutes a second."""
    streams: Annotated[int | None, integer(1, 1000)] = None
    """TCP connections of a pair: multiplies rates measured with one, up to the LAN's rate."""
    lan: Annotated[Lan | None, NULLABLE] = None
    """A LAN that differs from the file's, in every data centre."""
    data_centers: tuple[Annotated[NamedSite, SITE_CHANGE], ...] = ()
    """What differs in single data centres."""
    links: tuple[Annotated[LinkEnds, ReadAs(LINK_CHANGE)], ...] = ()
    """What differs on single links."""
    rate: Annotated[float | None, RATE] = None
    """Graph files: rate of links that have none."""
    delay: Annotated[float | None, DELAY] = None
    """Graph files: one-way delay of links whose ends have no coordinates."""
    stretch: Annotated[float | None, number(1, 10)] = None
    """Graph files: length of a fibre over the great circle (default 1.5)."""
    rate_unit: Annotated[str | None, one_of(*RATE_UNITS)] = None
    """Graph files: unit of LinkSpeedRaw (default bit/s) or of SNDlib's capacities (default Mbit/s)."""
    external: Annotated[bool | None, BOOLEAN] = None
    """Graph files: keep the vertices that the Topology Zoo marks as other networks."""


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
