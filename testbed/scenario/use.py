"""``topology: {use: hmc4, …}``: a built-in or a file, and what differs from it. It is written out when it is read.

Beside ``use``, ``data_centers`` and ``links`` say changes to what is there, by name and by ends. So the rest of the
program, and a run directory, know written-out topologies only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, ValidationError, ValidationInfo

from testbed.errors import ScenarioError
from testbed.scenario.axes import AxisSchema, Section
from testbed.scenario.changes import apply_changes
from testbed.scenario.devices import DeviceChanges
from testbed.scenario.document import parse, plain
from testbed.scenario.files import beside
from testbed.scenario.graphs import topology_of
from testbed.scenario.network import NULLABLE, About, Lan, Reverse, Topology
from testbed.scenario.problems import problems_of
from testbed.scenario.quantities import BOOLEAN, DELAY, NAME, RATE, integer, number, one_of, refuse, text_of
from testbed.scenario.rules import Violation, raise_found
from testbed.scenario.suggest import suggestion
from topologies.library import BUILT_IN, topology_path
from topologies.readers import READERS, GraphReading, read_graph
from topologies.readers.options import RATE_UNITS
from topologies.traces.model import TextFile

_NameOf = Annotated[str, NAME]
_FACTOR = number(0, 1e6, above=True)
_YAML = (".yaml", ".yml")
FOR_GRAPHS = ("rate", "delay", "stretch", "rate_unit", "external")


class SiteChange(Section):
    """What differs in one data centre."""

    name: Annotated[str, NAME]
    """Which one."""
    workers: Annotated[int | None, integer(0, 1000)] = None
    """As in a data centre."""
    global_servers: Annotated[int | None, integer(1, 64)] = None
    """As in a data centre."""
    lan: Annotated[Lan | None, NULLABLE] = None
    """As in a data centre."""
    device: Annotated[DeviceChanges | None, NULLABLE] = None
    """As in a data centre."""
    worker_devices: dict[str, DeviceChanges] | None = None
    """As in a data centre."""


class LinkChange(Reverse):
    """What differs on one link, in both directions (``between``) or in one."""

    between: Annotated[tuple[_NameOf, _NameOf] | None, NULLABLE] = None
    """The two ends."""
    source_end: Annotated[str | None, NAME] = Field(default=None, alias="from")
    """Where the direction begins."""
    target_end: Annotated[str | None, NAME] = Field(default=None, alias="to")
    """Where it ends."""


@dataclass(frozen=True)
class Used:
    """What ``use`` means: a path, and whether it is a file of the user's."""

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
    if ending not in (*_YAML, *READERS):
        raise refuse(f"'{ending}' is no ending of a topology file", f"one of {', '.join((*READERS, *_YAML))}")
    path = beside(name, info)
    if not path.is_file():
        raise refuse(f"{name}: no such file")
    return Used(name, path, ending in READERS)


class UsedTopology(Section):
    """A built-in topology or a file, and what differs from it."""

    use: Annotated[Any, BeforeValidator(_read_use)]
    """A built-in (testbed topology lists them), or a .yaml, .graphml, .gml or SNDlib .xml file beside the scenario."""
    central: Annotated[str | None, NAME] = None
    """The data centre of the global servers, instead of the file's own."""
    workers: Annotated[int | None, integer(1, 1000)] = None
    """Workers in every data centre."""
    sites: tuple[_NameOf, ...] | None = None
    """The vertices that are data centres; the others only pass traffic on, and those that need not, go."""
    scale: Annotated[float, _FACTOR] = 1.0
    """Divides all rates and queues in bytes, so that two cores suffice. Divide the model's size as well."""
    speed: Annotated[float, _FACTOR] = 1.0
    """Divides the times of all traces: 180 makes three minutes a second."""
    streams: Annotated[int | None, integer(1, 1000)] = None
    """TCP connections of a pair: multiplies rates measured with one, up to the LAN's rate."""
    lan: Annotated[Lan | None, NULLABLE] = None
    """A LAN that differs from the file's, in every data centre."""
    data_centers: tuple[SiteChange, ...] = ()
    """What differs in single data centres."""
    links: tuple[LinkChange, ...] = ()
    """What differs on single links."""
    rate: Annotated[float | None, RATE] = None
    """Graph files: rate of links that have none."""
    delay: Annotated[float | None, DELAY] = None
    """Graph files: one-way delay of links whose ends have no coordinates."""
    stretch: Annotated[float | None, number(1, 10)] = None
    """Graph files: length of a fibre over the great circle (1.5 unless said)."""
    rate_unit: Annotated[str | None, one_of(*RATE_UNITS)] = None
    """Graph files: unit of LinkSpeedRaw (bit/s unless said) or of SNDlib's capacities (Mbit/s unless said)."""
    external: Annotated[bool | None, BOOLEAN] = None
    """Graph files: keep the vertices that the Topology Zoo marks as other networks."""


def read_topology_file(path: Path, name: str) -> Topology:
    """A topology in our own YAML, with the keys of a scenario's ``topology``. Raises ``ScenarioError``."""
    root = parse(TextFile.read(path).text, name)
    try:
        return Topology.model_validate(plain(root), context={"folder": path.parent})
    except ValidationError as error:
        raise ScenarioError([str(problem) for problem in problems_of(error, root, Topology)]) from None


def _expand(used: UsedTopology) -> Topology:
    raise_found(_meaningless(used))
    try:
        base = _from_graph(used) if used.use.is_graph else read_topology_file(used.use.path, used.use.name)
    except ScenarioError as error:
        raise_found([Violation(("use",), "; ".join(error.problems[:3]))])
        raise
    return apply_changes(base, used)


def _meaningless(used: UsedTopology) -> list[Violation]:
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
    topology = topology_of(read_graph(used.use.path, reading))
    mended = topology.about.mended if topology.about else ()
    return topology.model_copy(update={"about": About(title=used.use.name, source=used.use.name, mended=mended)})


def _form(value: Any) -> str:
    return "<use>" if isinstance(value, UsedTopology) or (isinstance(value, dict) and "use" in value) else "<written>"


_OTHER = Annotated[UsedTopology, AfterValidator(_expand), Tag("<use>")]
TOPOLOGY = AxisSchema(Annotated[_OTHER | Annotated[Topology, Tag("<written>")], Discriminator(_form)])
