"""Makes a network from measurements between its sites: matrices and lists of round trips, delays, rates and losses.

A matrix has the names of the sites in its first row and first column. Its first cell or the file's name states the
quantity and unit (``rtt ms``, ``bandwidth_mbps.csv``). A list has a row per pair and named columns
(``topologies.table``). If it has a column of times, the rows of a pair become the trace of its link. Several files are
combined by the names of the sites.

The delay of each direction is half of the round trip. A value that was measured in one direction counts for both. If a
value was measured repeatedly, the median counts. Pairs without a measurement have no link.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from pathlib import Path
from statistics import median

import networkx as nx

from testbed.errors import ScenarioError
from testbed.ids import MAX_NAME, slug
from topologies.graph import Graph, new_graph
from topologies.table import MISSING, Column, Row, Table, read_matrix, read_table, role_of
from topologies.text_file import TextFile
from topologies.traces.formats.own import NetworkTraces, trace_of
from topologies.traces.model import CONSTANT_LIMITS, Reading, Trace

MAX_SITES = 10_000
_MOST_COMPARED = 1000  # most sites for a search of the central one, which takes a shortest-path tree for each
ASYMMETRIC = 0.1  # round trips of a pair that differ by more than this share of their mean are noted
_OF_LINKS = {
    "rate": ("rate: 1 Gbit/s", "bandwidth", "{rate: NAME in Mbit/s}"),
    "delay": ("delay: 20 ms", "round trips", "{delay: NAME in ms} or {rtt: NAME in ms}"),
}
_WHAT = {"rate": "rate", "delay": "delay", "rtt": "delay", "loss": "loss"}
_NAMED = 4
_FORM = (
    "a list has columns for the two ends, e.g. src,dst,rtt_ms; a matrix has the sites' names in the first row and the "
    "first column"
)
Pair = tuple[str, str]


@dataclass(slots=True)
class Measured:
    """The measurements of all files.

    sites   maps the name in the scenario to the name in a file
    values  by quantity and pair of sites, in SI units
    traces  of pairs that were measured over time, by (source, target, quantity)
    """

    files: list[str] = field(default_factory=list)
    sites: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[Pair, float]] = field(default_factory=lambda: defaultdict(dict))
    traces: dict[tuple[str, str, str], Trace] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def site(self, file: TextFile, line: int, name: str) -> str:
        """Return the name of a site for a scenario. Raise ``ScenarioError`` if another site has the same one.

        ``New York`` and ``new-york`` are the same site. Two long names with the same beginning, which would be cut to
        the same name, are different sites.
        """
        made = slug(name)
        if not made:
            file.refuse(line, f"'{name[:40]}' is not a name of a site", "letters and digits, e.g. us-east-1")
        other = self.sites.setdefault(made, name)
        if slug(other[-MAX_NAME:]) != slug(name[-MAX_NAME:]):
            file.refuse(line, f"'{other}' and '{name}' are both {made}", "rename one of them")
        return made


def read_measurements(
    paths: Sequence[Path],
    columns: Mapping[str, str] | None = None,
    *,
    rate_bps: float | None = None,
    delay_s: float | None = None,
    central: str | None = None,
    workers: int = 2,
) -> tuple[Graph[str], NetworkTraces]:
    """Return the network that files of measurements describe, and the traces of its links.

    columns   of lists: maps a role to the name of a column, or to ``NAME in UNIT``
    rate_bps  of links without a measured rate; ``None`` refuses them. ``delay_s`` likewise
    central   the data centre of the global server; ``None``: the nearest to all others
    workers   number of workers in each data centre

    Raise ``ScenarioError`` that names file, line and cure.
    """
    found = Measured()
    for path in paths:
        file = TextFile.read(path)
        if not file.rows:
            file.refuse(None, "no rows", "the file is empty, or holds comments only")
        found.files.append(file.name)
        matrix = read_matrix(file)
        if matrix is not None:
            _take_matrix(found, matrix)
        else:
            _take_list(found, read_table(file, columns))
    if not 2 <= len(found.sites) <= MAX_SITES:
        raise ScenarioError(f"{', '.join(found.files)}: {len(found.sites)} sites, expected 2 to {MAX_SITES}")
    _both_ways(found)
    _note_names(found)
    graph = _graph(found, rate_bps, delay_s, central, workers)
    graph.graph["notes"] = tuple(dict.fromkeys(found.notes))
    last_s = max((trace.length_s for trace in found.traces.values()), default=0.0)
    traces = {key: replace(trace, length_s=last_s) for key, trace in found.traces.items()}  # they repeat together
    return graph, NetworkTraces(", ".join(found.files), traces)


def _note_names(found: Measured) -> None:
    renamed = [f"'{name}' is {made}" for made, name in found.sites.items() if made != name]
    if renamed:
        more = f" and {len(renamed) - _NAMED} more" if len(renamed) > _NAMED else ""
        found.notes.append(
            f"a scenario writes the names of sites in small letters: {', '.join(renamed[:_NAMED])}{more}"
        )


def _take_list(found: Measured, table: Table) -> None:
    """Add the measurements of a list with one row per pair, or several rows over time."""
    if not (table.having("from") and table.having("to")):
        table.refuse(f"is neither a list nor a matrix: its first row is {', '.join(table.names[:6])}", _FORM)
    quantities = [column for role in _WHAT if (column := table.column(role)) is not None]
    if not quantities:
        table.needed("rate", "rate")
    over_time = table.column("time") is not None
    repeated = unmeasured = 0
    found.notes += [f"{table.file.name}: {note}" for note in table.notes]
    for (source, target), rows in table.pairs().items():
        ends = tuple(found.site(table.file, rows[0].line, name) for name in (source, target))
        if ends[0] == ends[1]:
            continue
        for column in quantities:
            rows_with = [row for row in rows if table.value(row, column) is not None]
            if over_time and len(rows) > 1:
                _take_trace(found, table, (ends[0], ends[1]), rows, column)
            elif rows_with:
                read = [_checked(table, row, column) for row in rows_with]
                values = [value for value in read if value is not None]
                unmeasured += len(read) - len(values)
                repeated += len(values) > 1
                if values:
                    found.values[column.role][ends[0], ends[1]] = median(values)
    for column in quantities:
        _note_shares(found, table, column)
    _note_unmeasured(found, table, unmeasured)
    if repeated:
        pairs = "pair was" if repeated == 1 else "pairs were"
        found.notes.append(f"{table.file.name}: {repeated} {pairs} measured repeatedly: the median counts")


def _take_trace(found: Measured, table: Table, ends: Pair, rows: list[Row], column: Column) -> None:
    if all(table.value(row, column) is None for row in rows):
        return
    what = _WHAT[column.role]
    trace = trace_of(table, rows, column, Reading(what=what))
    up = [value for value in trace.values if what != "rate" or value > 0]
    if not up:
        table.file.refuse(rows[0].line, f"the rate from {ends[0]} to {ends[1]} is always 0", "remove the pair")
    found.values[column.role][ends] = median(up)
    if len(trace.values) > 1:
        found.traces[(*ends, what)] = trace


def _note_shares(found: Measured, table: Table, column: Column) -> None:
    """Note that losses whose name states no unit count as shares, as tools such as ping report per cent."""
    if column.role == "loss" and column.scale == 1.0 and any(found.values["loss"].values()):
        cure = f"for per cent, call it '{column.name} %'"
        found.notes.append(f"{table.file.name}: '{column.name}' counts as shares, of which 0.5 is 50 % ({cure})")


def _note_unmeasured(found: Measured, table: Table, count: int) -> None:
    if count:
        found.notes.append(f"{table.file.name}: rates of 0 count as not measured ({count})")


def _checked(table: Table, row: Row, column: Column) -> float | None:
    """Return a value that is constant in a run; ``None`` for a rate of 0, which means that it was not measured."""
    value = table.value(row, column)
    if column.role == "rate" and value == 0:
        return None
    low, high, unit = CONSTANT_LIMITS[_WHAT[column.role]]
    if value is None or not low <= value <= high:
        problem = f"{row.cells[column.number]} in '{column.name}' is {value:g} {unit}, outside [{low:g}, {high:g}]"
        table.file.refuse(row.line, problem, "correct it, or state its unit in the header")
    return value


def _take_matrix(found: Measured, table: Table) -> None:
    """Add the measurements of a matrix; an empty cell means that the pair was not measured."""
    file = table.file
    names = table.names
    role, scale = _meaning(table, names[0])
    column = Column(names[0] or file.name, 0, role, scale)
    targets = {number: found.site(file, file.rows[0][0], name) for number, name in enumerate(names) if number}
    for number, name in targets.items():
        if name in [*targets.values()][: number - 1]:
            table.refuse(f"'{name}' has two columns", "remove one of them")
    unmeasured = 0
    for row in table.rows:
        source = found.site(file, row.line, row.cells[0])
        for number, target in targets.items():
            cell = row.cells[number]
            if source == target or cell.lower() in MISSING:
                continue
            cell_column = Column(column.name, number, role, scale)
            value = _checked(table, row, cell_column)
            if value is None:
                unmeasured += 1
            else:
                found.values[role][source, target] = value
    _note_shares(found, table, column)
    _note_unmeasured(found, table, unmeasured)


def _meaning(table: Table, corner: str) -> tuple[str, float | None]:
    """Return the role and scale of a matrix' numbers, from its first cell or its file's name.

    Raise ``ScenarioError`` if neither states them.
    """
    stem = table.file.name.rpartition(".")[0]
    for text in (corner, f"{stem} {corner}", stem):
        known = role_of(text) if text.strip() else None
        if known is not None and known[0] in _WHAT and (known[1] is not None or _has_units(table)):
            return known
    cure = "write quantity and unit into its first cell, e.g. 'rtt ms' or 'rate Mbit/s' (or 'delay ms': one way)"
    return table.refuse("what its numbers are, and in which unit, is not said", cure)


def _has_units(table: Table) -> bool:
    return any(cell and cell[-1].isalpha() and cell.lower() not in MISSING for cell in table.rows[0].cells[1:])


def _both_ways(found: Measured) -> None:
    """Turn round trips into delays, and use values that were measured in one direction for both."""
    trips = found.values.pop("rtt", {})
    delays = found.values["delay"]
    uneven = []
    for a, b in _pairs(trips):
        there = trips.get((a, b))
        back = trips.get((b, a))
        if there is not None and back is not None and abs(there - back) > ASYMMETRIC * (there + back) / 2:
            uneven.append((a, b))
        known = [trip for trip in (there, back) if trip is not None]
        for ends in ((a, b), (b, a)):
            delays.setdefault(ends, sum(known) / len(known))
    if uneven:
        found.notes.append(f"round trips of {_named(uneven)} differ by the direction: their mean counts")
    for what in ("rate", "delay", "loss"):
        values = found.values[what]
        one_way = []
        for a, b in [*values]:
            if (b, a) not in values:
                one_way.append((a, b))
                values[b, a] = values[a, b]
        if one_way:
            found.notes.append(f"the {what} of {_named(one_way)} was measured one way only, and counts for both")
        for a, b in [(a, b) for a, b, of in found.traces if of == what]:
            found.traces.setdefault((b, a, what), found.traces[a, b, what])


def _graph(
    found: Measured, rate_bps: float | None, delay_s: float | None, central: str | None, workers: int
) -> Graph[str]:
    graph = new_graph("", routing="hops")  # the link of a pair represents the measured path
    graph.add_nodes_from(found.sites, workers=workers)
    measured = {ends for values in found.values.values() for ends in values}
    for what, values, default in (("rate", found.values["rate"], rate_bps), ("delay", found.values["delay"], delay_s)):
        without = [ends for ends in _pairs(measured) if ends not in values]
        if without and default is None:
            example, file, column = _OF_LINKS[what]
            cure = f"add a file of {file}, a default: '{example}', or say which column it is: columns: {column}"
            raise ScenarioError(f"{', '.join(found.files)}: no {what} for {_named(without)} ({cure})")
    for a, b in sorted(measured):
        graph.add_edge(
            a,
            b,
            rate_bps=found.values["rate"].get((a, b), rate_bps),
            loss=found.values["loss"].get((a, b), 0.0),
            delay_s=round(found.values["delay"].get((a, b), delay_s or 0.0), 9),
            queue=None,
        )
    sites = len(found.sites)
    absent = sites * (sites - 1) // 2 - len(_pairs(measured))
    if absent:
        some = list(islice((pair for pair in combinations(found.sites, 2) if pair not in measured), _NAMED))
        were = "was" if absent == 1 else "were"
        found.notes.append(f"{_named(some, absent)} {were} not measured: no link; messages go over other sites")
    parts = sorted(nx.weakly_connected_components(graph), key=len, reverse=True)
    if len(parts) > 1:
        alone = ", ".join(sorted(parts[-1])[:_NAMED])
        cure = (
            "do all files call the sites by the same names? Otherwise leave the site out, or measure one of its pairs"
        )
        raise ScenarioError(f"{', '.join(found.files)}: no measurement connects {alone} with the others ({cure})")
    if central is not None and central not in graph:
        cure = f"one of {', '.join(found.sites)}"
        raise ScenarioError(f"central: no site named '{central}' in {', '.join(found.files)} ({cure})")
    if central is None and sites > _MOST_COMPARED:
        cure = f"the nearest to all others is looked for among at most {_MOST_COMPARED}: name the global server's site"
        raise ScenarioError(f"central: missing, and {', '.join(found.files)} has {sites} sites ({cure})")
    graph.graph["central"] = central or min(found.sites, key=lambda site: _distance_s(graph, site))
    return graph


def _distance_s(graph: Graph[str], site: str) -> float:
    """Return the sum of the delays from a site to all others."""
    return math.fsum(nx.single_source_dijkstra_path_length(graph, site, weight="delay_s").values())


def _pairs(ends: Iterable[Pair]) -> list[Pair]:
    """Return every pair once, sorted, whichever direction was given."""
    return sorted({(min(pair), max(pair)) for pair in ends})


def _named(pairs: Sequence[Pair], count: int = 0) -> str:
    """Return the first pairs as text, and the number of further ones. ``count``: of all, if ``pairs`` is incomplete."""
    shown = ", ".join(f"{a}-{b}" for a, b in pairs[:_NAMED])
    more = max(count, len(pairs)) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown
