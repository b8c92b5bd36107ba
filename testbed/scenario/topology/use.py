"""``topology`` as a scenario may write it: written out, or the name of a network with changes (``{use: hmc4, …}``).

Reading replaces the name by the written-out network, so the rest of the program and run directories never see the name.
Beside ``use``, ``data_centers`` and ``links`` hold changes to the data centres and links of the named network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, Tag, TypeAdapter, ValidationError, ValidationInfo

from testbed.declaration import item, key_of, option, written
from testbed.errors import ScenarioError
from testbed.scenario.reading.declared import model_of, section
from testbed.scenario.reading.document import parse, plain
from testbed.scenario.reading.files import beside
from testbed.scenario.reading.problems import problems_of
from testbed.scenario.reading.quantities import refuse, text_of
from testbed.scenario.reading.section import ReadAs
from testbed.scenario.reading.violations import Violation, checked, raise_found
from testbed.scenario.topology.links import LINK_CHANGE, Link, SiteName, changed, joined, one_way
from testbed.scenario.topology.topology import (
    SITE_CHANGE,
    About,
    DataCenter,
    Lan,
    Topology,
    follow,
    topology_of,
    with_traces,
)
from testbed.settings.series import Series
from testbed.suggest import nearest_or_all, suggestion
from topologies.graph import Paths
from topologies.library import BUILT_IN, topology_path
from topologies.measurements import read_measurements
from topologies.readers import READERS, GraphReading, endings, read_graph
from topologies.readers.base import RATE_UNITS
from topologies.text_file import TextFile

_YAML = (".yaml", ".yml")
FOR_GRAPHS = ("reader", "rate", "delay", "stretch", "rate_unit", "external")


@dataclass(frozen=True)
class Used:
    """The network that ``use`` or ``measurements`` names.

    paths  one file; for measurements, one or more
    form   ``topology`` (a file with the keys of a scenario), ``graph`` or ``measurements``
    """

    name: str
    paths: tuple[Path, ...]
    form: str


def _read_use(value: Any, info: ValidationInfo) -> Used | None:
    if value is None or isinstance(value, Used):
        return value
    name = text_of(value)
    if name in BUILT_IN:
        return Used(name, (topology_path(name),), "topology")
    ending = Path(name).suffix.lower()
    if not ending:
        raise refuse(f"'{name}' is not a built-in topology", nearest_or_all(name, BUILT_IN))
    is_graph = info.data.get("reader") is not None or ending in endings()
    if not is_graph and ending not in _YAML:
        known = f"one of {', '.join((*endings(), *_YAML))}, or name a 'reader'"
        raise refuse(f"'{ending}' is not an ending of a topology file", known)
    path = beside(name, info)
    if not path.is_file():
        raise refuse(f"{name}: not a file")
    return Used(name, (path,), "graph" if is_graph else "topology")


def _read_measurements(value: Any, info: ValidationInfo) -> Used | None:
    if value is None or isinstance(value, Used):
        return value
    names = [text_of(each) for each in (value if isinstance(value, list | tuple) else [value])]
    if not names:
        raise refuse("is empty", "name at least one file, e.g. [rtt.csv, bandwidth.csv]")
    return Used(", ".join(names), tuple(beside(name, info) for name in names), "measurements")


@dataclass(frozen=True, kw_only=True)
class UsedTopology:
    """A built-in topology or a file, and what differs from it."""

    reader: str | None = option(None, kinds=READERS)
    """Graph files: the reader of the file, a kind or ./FILE.py:Class; by default it follows from the file's ending."""
    use: Any = option(None, form=BeforeValidator(_read_use))
    """A built-in (testbed topology lists them), or a .yaml, .graphml, .gml or SNDlib .xml file beside the scenario."""
    measurements: Any = option(None, form=BeforeValidator(_read_measurements))
    """Instead of use: files of measurements between sites, as matrices or lists, e.g. [rtt.csv, bandwidth.csv]."""
    columns: dict[str, str] = option(dict)
    """Measurements: names of columns that are not recognised, by what they hold: time, from, to, rate, delay, rtt or
    loss, e.g. {rate: bw in Mbit/s}."""
    central: str | None = option(None, form="name")
    """The data centre of the global servers, instead of the file's own."""
    workers: int | None = option(None, min=1, max=1000)
    """Workers in every data centre."""
    sites: tuple[SiteName, ...] | None = None
    """The vertices that are data centres; others remain, as routers, if a path passes them."""
    scale: float = option(1.0, min=1e-6, max=1e6)
    """Divides all rates and queues in bytes, so that two cores can emulate the network. Divide the model's size as
    well."""
    speed: float = option(1.0, min=1e-6, max=1e6)
    """Divides the times of all traces: 180 turns three minutes into one second."""
    streams: int | None = option(None, min=1, max=1000)
    """TCP connections between each pair of sites: multiplies rates that were measured with one connection, up to the
    LAN's rate."""
    lan: Lan | None = None
    """The LAN of every data centre, instead of the file's."""
    data_centers: tuple[Annotated[Any, item(section=SITE_CHANGE)], ...] = ()
    """What differs in individual data centres."""
    links: tuple[Annotated[Any, item(section=LINK_CHANGE)], ...] = ()
    """What differs on individual links."""
    rate_bps: float | None = option(None, unit="bit/s")
    """Graph files and measurements: rate of links that have none."""
    delay_s: float | None = option(None, unit="s", max=10.0)
    """Graph files and measurements: one-way delay of links that have none."""
    stretch: float | None = option(None, min=1, max=10)
    """Graph files: length of a fibre divided by the great-circle distance (default 1.5)."""
    rate_unit: str | None = option(None, choices=tuple(RATE_UNITS))
    """Graph files: unit of LinkSpeedRaw (default bit/s) or of SNDlib's capacities (default Mbit/s)."""
    external: bool | None = None
    """Graph files: keep the vertices that the Topology Zoo marks as other networks."""

    @property
    def named(self) -> Used:
        """The network that ``use`` or ``measurements`` names."""
        found: Used = self.use or self.measurements
        return found


def apply_changes(base: Topology, used: UsedTopology) -> Topology:
    """Return ``base`` with the changes of ``used``. Raise every mistake, each at its key."""
    raise_found(_unknown_names(base, used))
    base = _with_sites(base, used) if used.sites is not None and used.named.form != "graph" else base
    sites = tuple(_site(site, used) for site in base.data_centers)
    lan = used.lan or base.lan
    links = one_way(base.links)
    raise_found(_link_violations(base, used, links))
    if used.streams is not None:
        links = {ends: _with_streams(link, used.streams, lan.rate_bps) for ends, link in links.items()}
    for change in used.links:
        for ends in links.keys() & change.directions:
            links[ends] = changed(links[ends], change)
    changes: dict[str, Any] = {"data_centers": sites, "lan": lan, "links": joined(links)}
    return checked(replace(base, scale=base.scale * used.scale, speed=base.speed * used.speed, **changes))


def _with_streams(link: Link, streams: int, most_bps: float) -> Link:
    """Return the link with its rate and the points of its rate trace multiplied by the number of connections.

    A trace from a model needs no change: its values are multiples of the link's rate.
    """
    changes: dict[str, Any] = {"rate_bps": min(most_bps, link.rate_bps * streams)}
    if isinstance(link.rate_trace, Series):
        faster = tuple(min(most_bps, value * streams) for value in link.rate_trace.values)
        changes["rate_trace"] = replace(link.rate_trace, values=faster)
    return replace(link, **changes)


def _unknown_names(base: Topology, used: UsedTopology) -> Iterator[Violation]:
    sites = [site.name for site in base.data_centers]
    chosen = list(used.sites) if used.sites is not None else sites
    if used.sites is not None and not used.sites:
        yield Violation(("sites",), "is empty", "name at least one vertex")
    for index, name in enumerate(used.sites or ()):
        if name not in sites:
            yield _no_site(("sites", index), name, sites)
    if used.central is not None and used.central not in chosen:
        yield _no_site(("central",), used.central, chosen)
    for index, change in enumerate(used.data_centers):
        if change.name not in chosen:
            yield _no_site(("data_centers", index, "name"), change.name, chosen)
    if used.streams is not None and (base.about is None or base.about.streams != 1):
        problem = f"has no effect on '{used.named.name}', whose rates were not measured with one connection"
        yield Violation(("streams",), problem, "use hmc4 or aws11, or 'scale'")


def _no_site(at: tuple[str | int, ...], name: str, known: list[str]) -> Violation:
    return Violation(at, f"no data centre named '{name}'", nearest_or_all(name, known, 12))


def _with_sites(base: Topology, used: UsedTopology) -> Topology:
    """Return the topology with only the chosen data centres. Other vertices on paths between them become routers."""
    assert used.sites is not None
    kept = [site for site in base.data_centers if site.name in used.sites]
    central = used.central or next((site.name for site in kept if site.central), kept[0].name)
    by_ends = one_way(base.links)
    edges = [(*ends, link.delay_s) for ends, link in by_ends.items()]
    passed: set[str] = set()
    for origin in used.sites:
        paths = Paths(edges, origin, base.routing, backwards=False)
        passed.update(*(paths.path(other) for other in used.sites if other in paths))
    routers = [name for name in (*base.routers, *(site.name for site in base.data_centers)) if name in passed]
    routers = [name for name in routers if name not in used.sites]
    alive = {*used.sites, *routers}
    links = {ends: link for ends, link in by_ends.items() if alive.issuperset(ends)}
    changes: dict[str, Any] = {
        "data_centers": tuple(replace(site, **_as_central(site, central)) for site in kept),
        "routers": tuple(routers),
        "links": joined(links),
        "coordinates": {name: place for name, place in base.coordinates.items() if name in alive},
    }
    return checked(replace(base, **changes))


def _as_central(site: DataCenter, central: str) -> dict[str, Any]:
    """Return the changes to ``site`` that make ``central`` the data centre of the global servers."""
    is_central = site.name == central
    return {"central": is_central, "global_servers": site.global_servers if is_central else None}


def _site(site: DataCenter, used: UsedTopology) -> DataCenter:
    changes: dict[str, Any] = {}
    if used.workers is not None:
        changes["workers"] = used.workers
    if used.central is not None:
        changes |= _as_central(site, used.central)
    if used.lan is not None:
        changes["lan"] = None
    for change in used.data_centers:
        if change.name == site.name:
            changes |= {key: value for key, value in vars(change).items() if value is not None and key != "name"}
    return replace(site, **changes)


def _link_violations(base: Topology, used: UsedTopology, links: dict[tuple[str, str], Link]) -> Iterator[Violation]:
    known = [*(site.name for site in base.data_centers), *base.routers]
    for index, change in enumerate(used.links):
        ends = change.directions[0]
        given = (change.source, change.target)
        if any(given) if change.between else not all(given):
            yield Violation(("links", index), "must name two ends", "write 'between: [a, b]', or 'from: a' and 'to: b'")
            continue
        for end in ends:
            if end not in known:
                yield Violation(("links", index), f"no data centre or router named '{end}'", suggestion(end, known))
        if all(end in known for end in ends) and links.keys().isdisjoint(change.directions):
            yield Violation(
                ("links", index), f"there is no link from '{ends[0]}' to '{ends[1]}'", "links here change others"
            )


def _read_file(path: Path, name: str, context: dict[str, Any]) -> Topology:
    """Return a topology in our own YAML, with the keys of a scenario's ``topology``. Raise ``ScenarioError``."""
    root = parse(TextFile.read(path).text, name)
    try:
        found: Topology = _WRITTEN.validate_python(plain(root), context={**context, "folder": path.parent})
    except ValidationError as error:
        raise ScenarioError([str(problem) for problem in problems_of(error, root, model_of(Topology))]) from None
    return found


def _expand(used: UsedTopology, info: ValidationInfo) -> Topology:
    raise_found(_without_effect(used))
    try:
        base = _BASES[used.named.form](used, info)
    except ScenarioError as error:
        key = "use" if used.use is not None else "measurements"
        raise_found([Violation((key,), "; ".join(error.problems[:3]))])
        raise
    return apply_changes(base, used)


def _without_effect(used: UsedTopology) -> Iterator[Violation]:
    """Yield a violation for each setting that applies only to another form of network."""
    if used.use is not None and used.measurements is not None:
        yield Violation(("measurements",), "has no effect beside 'use'", "keep one of them")
    allowed = {"graph": FOR_GRAPHS, "measurements": ("rate", "delay")}.get(used.named.form, ())
    for field in written(used):
        key = key_of(field)
        if key in FOR_GRAPHS and getattr(used, field.name) is not None and key not in allowed:
            cure = "it is for graph files" if key not in ("rate", "delay") else "it is for graph files and measurements"
            yield Violation((key,), f"has no effect on '{used.named.name}', which has its own", cure)
    if used.columns and used.named.form != "measurements":
        yield Violation(("columns",), f"has no effect on '{used.named.name}'", "it is for measurements")


def _from_file(used: UsedTopology, info: ValidationInfo) -> Topology:
    return _read_file(used.named.paths[0], used.named.name, info.context or {})


def _from_measurements(used: UsedTopology, info: ValidationInfo) -> Topology:
    graph, traces = read_measurements(
        used.named.paths,
        used.columns,
        rate_bps=used.rate_bps,
        delay_s=used.delay_s,
        central=used.central,
        workers=used.workers or 2,
    )
    made = topology_of(graph)
    about = About(title="measurements", source=used.named.name[:200], repaired=_repaired(made))
    return replace(made, links=follow(made.links, traces, info), about=about)


def _repaired(topology: Topology) -> tuple[str, ...]:
    return topology.about.repaired if topology.about else ()


def _from_graph(used: UsedTopology, info: ValidationInfo) -> Topology:
    reading = GraphReading(
        rate_bps=used.rate_bps,
        delay_s=used.delay_s,
        stretch=used.stretch or 1.5,
        rate_unit=used.rate_unit,
        sites=used.sites,
        external=bool(used.external),
        central=used.central,
        workers=used.workers or 2,
    )
    topology = topology_of(read_graph(used.named.paths[0], reading, used.reader))
    about = About(title=used.named.name, source=used.named.name, repaired=_repaired(topology))
    return replace(topology, about=about)


_BASES = {"topology": _from_file, "graph": _from_graph, "measurements": _from_measurements}


def _form(value: Any) -> str:
    names = isinstance(value, dict) and ("use" in value or "measurements" in value)
    return "<use>" if isinstance(value, UsedTopology) or names else "<written>"


_TOPOLOGY: Any = Annotated[Topology, section(Topology), AfterValidator(with_traces)]
_WRITTEN: TypeAdapter[Any] = TypeAdapter(_TOPOLOGY)
_NAMED: Any = Annotated[UsedTopology, section(UsedTopology), AfterValidator(_expand), Tag("<use>")]
TOPOLOGY = ReadAs(Annotated[_NAMED | Annotated[_TOPOLOGY, Tag("<written>")], Discriminator(_form)])
