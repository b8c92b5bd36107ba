"""Rules over the parts of a written-out topology: names, the central data centre, ends of links, reachability."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import networkx as nx

from testbed.scenario.reading.suggest import suggestion
from testbed.scenario.reading.violations import Violation
from testbed.scenario.topology.links import Link
from testbed.scenario.topology.sites import DataCenter

MAX_DATA_CENTERS = 10_000


def structure_violations(
    sites: Sequence[DataCenter], routers: Sequence[str], links: Sequence[Link], coordinates: Iterable[str]
) -> list[Violation]:
    """Return what is wrong; whether all data centres can be reached is checked only where nothing else is wrong."""
    vertices = dict.fromkeys((*(site.name for site in sites), *routers))
    found = [
        *_names(sites, routers),
        *_central(sites),
        *_data_centers(sites),
        *_links(links, vertices),
        *(
            Violation(("coordinates", name), f"no data centre or router named '{name}'", suggestion(name, vertices))
            for name in coordinates
            if name not in vertices
        ),
    ]
    return found or list(_unreachable(sites, links))


def _names(sites: Sequence[DataCenter], routers: Sequence[str]) -> Iterator[Violation]:
    if not 1 <= len(sites) <= MAX_DATA_CENTERS:
        yield Violation(("data_centers",), f"has {len(sites)} data centres, allowed 1 to {MAX_DATA_CENTERS}")
    named: list[tuple[tuple[str | int, ...], str]] = [
        *((("data_centers", index, "name"), site.name) for index, site in enumerate(sites)),
        *((("routers", index), name) for index, name in enumerate(routers)),
    ]
    first: dict[str, str] = {}
    for at, name in named:
        place = first.setdefault(name, f"{at[0]}[{at[1]}]")
        if place != f"{at[0]}[{at[1]}]":
            yield Violation(at, f"'{name}' is used twice (also {place})")


def _central(sites: Sequence[DataCenter]) -> Iterator[Violation]:
    central = [index for index, site in enumerate(sites) if site.central]
    if not central and sites:
        yield Violation(("data_centers",), "no data centre is central", "write 'central: true' at one of them")
    for index in central[1:]:
        yield Violation(("data_centers", index, "central"), f"data_centers[{central[0]}] is central already")


def _data_centers(sites: Sequence[DataCenter]) -> Iterator[Violation]:
    for index, site in enumerate(sites):
        at = ("data_centers", index)
        if site.workers == 0 and not site.central:
            yield Violation((*at, "workers"), "0 is outside [1, 1000]", "only the central data centre may have none")
        if site.global_servers is not None and not site.central:
            cure = "global servers live in the central data centre"
            yield Violation((*at, "global_servers"), "has no effect here", cure)
        workers = [f"worker{number}" for number in range(site.workers)]
        for name in site.worker_devices:
            if name not in workers:
                known = suggestion(name, workers) or f"it has {site.workers} workers"
                yield Violation((*at, "worker_devices", name), f"no worker named '{name}' in '{site.name}'", known)
    if sites and not any(site.workers for site in sites):
        yield Violation(("data_centers",), "there is no worker", "write 'workers: 2' at one of them")


def _links(links: Sequence[Link], vertices: dict[str, None]) -> Iterator[Violation]:
    seen: dict[tuple[str, str], int] = {}
    for index, link in enumerate(links):
        keys = [("between", 0), ("between", 1)] if link.between is not None else [("from",), ("to",)]
        for key, end in zip(keys, link.directions[0], strict=True):
            if end not in vertices:
                problem = f"no data centre or router named '{end}'"
                yield Violation(("links", index, *key), problem, suggestion(end, vertices))
        for pair in link.directions:
            first = seen.setdefault(pair, index)
            if first != index:
                yield Violation(("links", index), f"'{pair[0]}' to '{pair[1]}' is linked twice (also links[{first}])")


def _unreachable(sites: Sequence[DataCenter], links: Sequence[Link]) -> Iterator[Violation]:
    """Yield data centres that the central one cannot reach, or that cannot reach it."""
    central = next(site.name for site in sites if site.central)
    graph = nx.DiGraph(pair for link in links for pair in link.directions)
    graph.add_node(central)
    reached, reaching = nx.descendants(graph, central), nx.ancestors(graph, central)
    for index, site in enumerate(sites):
        at = ("data_centers", index, "name")
        if site.name != central and site.name not in reached:
            yield Violation(at, f"no path from '{central}' to '{site.name}'", "add a link")
        elif site.name != central and site.name not in reaching:
            yield Violation(at, f"no path from '{site.name}' to '{central}'", "add a link")
