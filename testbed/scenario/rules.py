"""Rules that look at more than one value. Each says where, what is wrong, and what to do; all of a section at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import networkx as nx
from pydantic_core import PydanticCustomError

from testbed.policy.collective.peers import LIBRARIES
from testbed.scenario.reading.suggest import suggestion

if TYPE_CHECKING:
    from testbed.scenario.network import DataCenter, Link, Topology
    from testbed.scenario.reading.axes import Technique
    from testbed.scenario.schema import Scenario, Training
    from testbed.scenario.traces import AnyTrace

MAX_DATA_CENTERS = 10_000
MAX_REAL_NODES = 256
MAX_SIMULATED_WORKERS = 100_000


@dataclass(frozen=True)
class Violation:
    """One broken rule; ``at`` is the path below the section that is checked."""

    at: tuple[str | int, ...]
    problem: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{'.'.join(map(str, self.at))}: {self.problem}"
        return f"{text} ({self.hint})" if self.hint else text


def raise_found(found: Iterable[Violation]) -> None:
    """Report all of ``found``, if there is any."""
    found = tuple(found)
    if found:
        raise PydanticCustomError("rules", "rules", {"found": found})


def check_trace(trace: AnyTrace) -> AnyTrace:
    """Times rise from 0, and a repetition comes after the last of them."""
    raise_found(_trace_problems(trace))
    return trace


def _trace_problems(trace: AnyTrace) -> Iterator[Violation]:
    points = getattr(trace, "points", ())
    if trace.model is not None:
        if points:
            yield Violation(("points",), "has no effect beside 'model'", "keep one of them")
        if trace.repeat_after is not None:
            yield Violation(("repeat_after",), "has no effect beside 'model'", "a model has its own length")
        yield from _option_problems(trace.model, ("model",))
        return
    if not points:
        yield Violation((), "has no points", "write a list of {at: 0 s, rate: 20 Mbit/s}, or file: NAME.csv")
        return
    times = [point.at for point in points]
    if times[0] != 0:
        yield Violation(("points", 0, "at"), f"the first time is {times[0]:g} s, and must be 0 s")
    for index, (before, after) in enumerate(pairwise(times), start=1):
        if after <= before:
            yield Violation(("points", index, "at"), f"{after:g} s does not come after {before:g} s")
    if trace.repeat_after is not None and trace.repeat_after <= times[-1]:
        yield Violation(("repeat_after",), f"{trace.repeat_after:g} s is not after the last point ({times[-1]:g} s)")


def _option_problems(technique: Technique, at: tuple[str, ...]) -> Iterator[Violation]:
    """What the options' owner finds wrong in them."""
    options = technique.made()
    for option, problem, hint in getattr(options, "problems", list)():
        yield Violation((*at, option), problem, hint)


def check_link(link: Link) -> Link:
    """A link has two different ends, named in one of two ways."""
    raise_found(_link_problems(link))
    return link


def _link_problems(link: Link) -> Iterator[Violation]:
    one_way = (link.source, link.target)
    if link.between is not None and one_way != (None, None):
        yield Violation((), "has both 'between' and 'from'/'to'", "keep one of them")
    elif link.between is None and None in one_way:
        yield Violation((), "has no ends", "write 'between: [a, b]', or 'from: a' and 'to: b'")
    elif link.between is None and link.reverse is not None:
        yield Violation(("reverse",), "has no effect on a one-way link", "write 'between: [a, b]'")
    if link.loss == 0 and link.loss_trace is not None and link.loss_trace.model is not None:
        yield Violation(("loss_trace", "model"), "has no effect, as 'loss' is 0", "its values are multiples of 'loss'")
    ends = link.between or one_way
    if ends[0] is not None and ends[0] == ends[1]:
        yield Violation(("between",) if link.between else ("to",), f"both ends are '{ends[0]}'")


def check_topology(topology: Topology) -> Topology:
    """Names are unique, one data centre is central, links end somewhere, and everybody reaches everybody."""
    if topology.generator is not None:
        found = [
            Violation((key,), "has no effect beside 'generator'", "keep one of them")
            for key in ("data_centers", "links", "routers", "coordinates")
            if getattr(topology, key)
        ]
        raise_found([*found, *_option_problems(topology.generator, ("generator",))])
        return topology
    found = [*_names(topology), *_central(topology), *_data_centers(topology), *_links(topology), *_places(topology)]
    raise_found(found or _unreachable(topology))
    return topology


def _names(topology: Topology) -> Iterator[Violation]:
    count = len(topology.data_centers)
    if not 1 <= count <= MAX_DATA_CENTERS:
        yield Violation(("data_centers",), f"has {count} data centres, allowed 1 to {MAX_DATA_CENTERS}")
    first: dict[str, str] = {}
    for index, data_center in enumerate(topology.data_centers):
        place = first.setdefault(data_center.name, f"data_centers[{index}]")
        if place != f"data_centers[{index}]":
            yield Violation(("data_centers", index, "name"), f"'{data_center.name}' is used twice (also {place})")
    for index, router in enumerate(topology.routers):
        place = first.setdefault(router, f"routers[{index}]")
        if place != f"routers[{index}]":
            yield Violation(("routers", index), f"'{router}' is used twice (also {place})")


def _central(topology: Topology) -> Iterator[Violation]:
    central = [index for index, data_center in enumerate(topology.data_centers) if data_center.central]
    if not central and topology.data_centers:
        yield Violation(("data_centers",), "no data centre is central", "write 'central: true' at one of them")
    for index in central[1:]:
        yield Violation(("data_centers", index, "central"), f"data_centers[{central[0]}] is central already")


def _data_centers(topology: Topology) -> Iterator[Violation]:
    for index, data_center in enumerate(topology.data_centers):
        at = ("data_centers", index)
        if data_center.workers == 0 and not data_center.central:
            yield Violation((*at, "workers"), "0 is outside [1, 1000]", "only the central data centre may have none")
        if data_center.global_servers is not None and not data_center.central:
            yield Violation(
                (*at, "global_servers"), "has no effect here", "global servers live in the central data centre"
            )
        yield from _worker_devices(data_center, at)
    if topology.data_centers and not any(data_center.workers for data_center in topology.data_centers):
        yield Violation(("data_centers",), "there is no worker", "write 'workers: 2' at one of them")


def _worker_devices(data_center: DataCenter, at: tuple[str | int, ...]) -> Iterator[Violation]:
    workers = [f"worker{number}" for number in range(data_center.workers)]
    for name in data_center.worker_devices:
        if name not in workers:
            known = suggestion(name, workers) or f"it has {data_center.workers} workers"
            yield Violation((*at, "worker_devices", name), f"no worker named '{name}' in '{data_center.name}'", known)


def _links(topology: Topology) -> Iterator[Violation]:
    known = [*(data_center.name for data_center in topology.data_centers), *topology.routers]
    seen: dict[tuple[str, str], int] = {}
    for index, link in enumerate(topology.links):
        for key, end in _ends(link):
            if end not in known:
                problem = f"no data centre or router named '{end}'"
                yield Violation(("links", index, *key), problem, suggestion(end, known))
        for pair in directions(link):
            first = seen.setdefault(pair, index)
            if first != index:
                yield Violation(("links", index), f"'{pair[0]}' to '{pair[1]}' is linked twice (also links[{first}])")


def _places(topology: Topology) -> Iterator[Violation]:
    known = [*(data_center.name for data_center in topology.data_centers), *topology.routers]
    for name in topology.coordinates:
        if name not in known:
            yield Violation(("coordinates", name), f"no data centre or router named '{name}'", suggestion(name, known))


def _ends(link: Link) -> list[tuple[tuple[str | int, ...], str]]:
    if link.between is not None:
        return [(("between", number), end) for number, end in enumerate(link.between)]
    assert link.source is not None and link.target is not None
    return [(("from",), link.source), (("to",), link.target)]


def directions(link: Link) -> list[tuple[str, str]]:
    """The ordered pairs of ends that a link joins."""
    if link.between is not None:
        first, second = link.between
        return [(first, second), (second, first)]
    assert link.source is not None and link.target is not None
    return [(link.source, link.target)]


def _unreachable(topology: Topology) -> Iterator[Violation]:
    """Data centres that the central one cannot reach, or that cannot reach it."""
    central = next(data_center.name for data_center in topology.data_centers if data_center.central)
    graph = nx.DiGraph(pair for link in topology.links for pair in directions(link))
    graph.add_node(central)
    there, back = nx.descendants(graph, central), nx.ancestors(graph, central)
    for index, data_center in enumerate(topology.data_centers):
        name, at = data_center.name, ("data_centers", index, "name")
        if name != central and name not in there:
            yield Violation(at, f"no path from '{central}' to '{name}'", "add a link")
        elif name != central and name not in back:
            yield Violation(at, f"no path from '{name}' to '{central}'", "add a link")


def check_training(training: Training) -> Training:
    """Model and data fit together, and the accuracy is measured at least once when it decides about the end."""
    takes, gives = training.model.trait("takes"), training.data.trait("gives")
    if takes != gives:
        problem = f"'{training.data.kind}' gives {gives}, but the model '{training.model.kind}' takes {takes}"
        raise_found([Violation(("data",), problem, "choose another model or data")])
    if training.target_accuracy is not None and training.evaluate_every > training.rounds:
        problem = f"{training.evaluate_every} is more than training.rounds ({training.rounds})"
        raise_found([Violation(("evaluate_every",), problem, "target_accuracy would never be looked at")])
    return training


def scenario_problems(scenario: Scenario) -> Iterator[Violation]:
    """Limits that depend on the back end."""
    nodes, on = count_nodes(scenario.topology), scenario.run.on
    if scenario.paradigm.trait("tiers") == 1:
        del nodes["server"]
    if on == "simulate" and nodes["worker"] > MAX_SIMULATED_WORKERS:
        yield Violation(("topology",), f"{nodes['worker']} workers in total, limit {MAX_SIMULATED_WORKERS}")
    if on != "simulate" and nodes.total() > MAX_REAL_NODES:
        problem = f"{nodes.total()} nodes in total, limit {MAX_REAL_NODES} with 'on: {on}'"
        yield Violation(("topology",), problem, "use fewer, or 'on: simulate'")
    if scenario.transport.tls:
        yield from _uncovered(scenario)


def _uncovered(scenario: Scenario) -> Iterator[Violation]:
    """What would cross the network in clear text beside our own connections."""
    if scenario.order.kind == "dgt" and scenario.order.options()["channels"]:
        problem = "covers connections, and 'dgt' sends datagrams beside them"
        yield Violation(("transport", "tls"), problem, "write order: fifo or p3, or tls: false")
    if scenario.paradigm.kind in LIBRARIES:
        problem = f"covers our own connections, and '{scenario.paradigm.kind}' opens others"
        yield Violation(("transport", "tls"), problem, "write paradigm: allreduce, or tls: false")


def count_nodes(topology: Topology) -> Counter[str]:
    """How many nodes of each role the topology asks for."""
    if topology.generator is not None:
        options = topology.generator.made()
        sites = options.data_centers
        return Counter(worker=sites * options.workers, server=sites, global_server=1, scheduler=1)
    sites = topology.data_centers
    workers = sum(site.workers or int(site.central) for site in sites)
    globals_ = sum(site.global_servers or int(site.central) for site in sites)
    return Counter(worker=workers, server=len(sites), global_server=globals_, scheduler=1)
