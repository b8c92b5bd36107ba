"""Show a network: its data centres and links as tables, picture, JSON or YAML. Without a name, list built-in networks.

``testbed topology import rtt.csv bandwidth.csv --yaml net.yaml`` makes a network from measurements between its sites.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cli.options import Outcome, add_allow_code, save, write
from testbed.display import look
from testbed.errors import ScenarioError
from testbed.numbers import MISSING, counted

if TYPE_CHECKING:
    from testbed.plan.model import LinkPlan, NetworkPlan
    from testbed.scenario.look_up import NetworkDescription

HELP = "show a network by name or file: tables, picture, JSON"
LINKS_SHOWN = 60
IMPORT = "import"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "network",
        nargs="*",
        metavar="NAME|FILE",
        help="a built-in, a generator, a .yaml, .graphml, .gml or .xml file or scenario; or 'import' "
        "and files of measurements",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="a key that may be written beside 'use' or 'measurements', or a generator's option: --set scale=10",
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw it (.png, .svg, .pdf)")
    parser.add_argument("--yaml", type=Path, metavar="FILE", help="write the network to a file, to edit and use")
    add_allow_code(parser)


def execute(arguments: argparse.Namespace) -> Outcome:
    if not arguments.network:
        return _list(arguments.json)
    from testbed.facilities import BACK_ENDS
    from testbed.plan.network import build_links, build_network

    found = _found(arguments)
    plan = build_network(found.topology, build_links(found.topology), BACK_ENDS["simulate"])
    if not arguments.json:
        _print(found, plan)
    if arguments.picture:
        _draw(found, plan, arguments.picture)
    if arguments.yaml:
        from testbed.scenario.reading.declared import to_yaml

        write(arguments.yaml, to_yaml(found.topology))
    if arguments.json:
        return _as_json(found, plan)
    for path in filter(None, (arguments.picture, arguments.yaml)):
        print(f"written: {path}")
    return 0


def _found(arguments: argparse.Namespace) -> NetworkDescription:
    from testbed.scenario.look_up import measured, network

    first, *others = arguments.network
    if first == IMPORT:
        if not others:
            raise ScenarioError("topology import: name at least one file, e.g. rtt.csv bandwidth.csv")
        return measured(others, arguments.overrides)
    if others:
        raise ScenarioError(f"topology: '{others[0]}' is one network too many; measurements come after 'import'")
    return network(first, arguments.overrides, arguments.allow_code)


def _list(as_json: bool) -> Outcome:
    from testbed.scenario.look_up import network
    from topologies.generators import GENERATORS
    from topologies.library import BUILT_IN

    found = [network(name) for name in BUILT_IN]
    kinds = {kind: (options.__doc__ or "").splitlines()[0] for kind, options in GENERATORS.items()}
    if as_json:
        built_in = {entry.name: _title(entry) for entry in found}
        return {"kind": "topologies", "built_in": built_in, "generators": kinds}
    rows = [
        (entry.name, str(len(entry.topology.data_centers)), str(len(entry.topology.links)), _title(entry))
        for entry in found
    ]
    look.console().print(
        look.table("built-in topologies", "name", ">data centres", ">links", "what it is", rows=rows),
        look.table("generators", "name", "what it makes", rows=kinds.items()),
    )
    return 0


def _title(found: NetworkDescription) -> str:
    about = found.topology.about
    return (about.title or "") if about is not None else ""


def _print(found: NetworkDescription, plan: NetworkPlan) -> None:
    from testbed.units import format_duration, format_rate

    topology = found.topology
    title = _title(found)
    console = look.console()
    sites = look.table(
        f"{found.name}: {title}" if title else found.name,
        "data centre",
        ">workers",
        ">LAN",
        ">LAN delay",
        "place",
    )
    for site, planned in zip(topology.data_centers, plan.sites, strict=True):
        place = topology.coordinates.get(site.name)
        sites.add_row(
            site.name + (" (central)" if site.central else ""),
            str(site.workers),
            format_rate(planned.lan_rate_bps),
            format_duration(planned.lan_delay_s),
            f"{place[0]:g}, {place[1]:g}" if place else MISSING,
        )
    console.print(sites)
    if plan.routers:
        console.print(f"routers: {', '.join(plan.routers)}")
    console.print(_links(plan))
    about = topology.about
    if about is not None:
        lines = (
            ("source", about.source),
            ("licence", about.licence),
            *(("note", note) for note in about.notes),
            *(("repaired", note) for note in about.repaired),
        )
        for key, text in lines:
            if text:
                console.print(f"{key}: {text}")
    if topology.scale != 1:
        console.print(f"scale: all rates above are divided by {topology.scale:g}; delays are not")


def _links(plan: NetworkPlan) -> Any:
    from testbed.units import format_duration, format_rate, format_share, format_size

    title = "links"
    if len(plan.links) > LINKS_SHOWN:
        title = f"links (the first {LINKS_SHOWN} of {len(plan.links)} directions)"
    shown = look.table(title, "link", ">rate", ">one-way delay", ">round trip", ">queue", ">loss", "traces")
    delays = {link.name: link.delay_s for link in plan.links}
    for link in plan.links[:LINKS_SHOWN]:
        back = delays.get(f"{link.target}>{link.source}")
        trip = format_duration(float(f"{link.delay_s + back:.6g}")) if back is not None else MISSING
        shown.add_row(
            link.name,
            format_rate(float(f"{link.rate_bps:.6g}")),
            format_duration(link.delay_s),
            trip,
            format_size(link.queue_bytes),
            format_share(link.loss),
            _traces(link),
        )
    return shown


def _traces(link: LinkPlan) -> str:
    named = (("rate", link.rate_trace), ("delay", link.delay_trace), ("loss", link.loss_trace))
    return ", ".join(f"{what}: {counted(len(series.values), 'step')}" for what, series in named if series) or MISSING


def _as_json(found: NetworkDescription, plan: NetworkPlan) -> dict[str, Any]:
    from testbed.scenario.reading.declared import resolved

    written = resolved(found.topology)
    links = [
        {
            "link": link.name,
            "rate_bps": link.rate_bps,
            "delay_s": link.delay_s,
            "queue_bytes": link.queue_bytes,
            "loss": link.loss,
        }
        for link in plan.links
    ]
    return {
        "kind": "topology",
        "name": found.name,
        "about": written.get("about", {}),
        "scale": found.topology.scale,
        "data_centers": written["data_centers"],
        "routers": list(plan.routers),
        "links": links,
        "coordinates": found.topology.coordinates,
        "routes": plan.routes,
    }


def _draw(found: NetworkDescription, plan: NetworkPlan, path: Path) -> None:
    from analysis.figures.topology import draw

    graph = found.graph.copy()
    for link in plan.links:
        graph.edges[link.source, link.target].update(rate_bps=link.rate_bps, delay_s=link.delay_s)
    scale = f"rates divided by {found.topology.scale:g}" if found.topology.scale != 1 else ""
    save(draw(graph, found.name, "; ".join(filter(None, (_title(found), scale)))), path)
