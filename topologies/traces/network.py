"""One CSV for all links of a network: ``time_s,src,dst`` and any of rate, delay and loss."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from topologies.traces.formats import own
from topologies.traces.model import WHAT, Reading, TextFile, Trace


@dataclass(frozen=True, slots=True)
class NetworkTraces:
    """Traces by (source, target, what), and the file's name."""

    name: str
    traces: dict[tuple[str, str, str], Trace]


def read_network_traces(path: Path) -> NetworkTraces:
    """Read all traces of a file. Raise ``ScenarioError`` that names file, line and cure."""
    file = TextFile.read(path)
    if not file.rows:
        file.refuse(None, "no rows", "the file is empty, or holds comments only")
    table = own.header(file)
    if "src" not in table.names or "dst" not in table.names:
        file.refuse(file.rows[0][0], "has no columns 'src' and 'dst'", "write 'time_s,src,dst,rate_mbit_s'")
    src, dst = table.names.index("src"), table.names.index("dst")
    columns = [(what, *own.only_column(file, table, what)) for what in WHAT if table.values(what)]
    if not columns:
        file.refuse(file.rows[0][0], "has no column of rates, delays or losses", "write 'time_s,src,dst,rate_mbit_s'")
    by_pair: dict[tuple[str, str], list[own.TraceRow]] = {}
    for row in own.rows(file, table):
        by_pair.setdefault((row.cells[src], row.cells[dst]), []).append(row)
    traces = {
        (*pair, what): own.trace_of(file, chosen, column, scale, Reading(what=what))
        for pair, chosen in by_pair.items()
        for what, column, scale in columns
    }
    return NetworkTraces(file.name, traces)
