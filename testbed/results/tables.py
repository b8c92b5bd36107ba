"""Convert events to tidy tables, and tables to Parquet and back. The tables are a cache of the events.

A million events take about two seconds: Arrow reads the JSON lines in one pass per part. A part that Arrow refuses
(a damaged line, a field of another type) is read line by line, and lost lines are counted in ``warnings``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from testbed.results import atomic
from testbed.results.columns import FLAG, FLOAT, INTEGER, TABLES, TEXT, Column, Table, event_fields
from testbed.results.events import PartReader, parts, writer_of

if TYPE_CHECKING:
    import pandas as pd

# numbers are read as float64 first: JSON has no integers, and 2^53 suffices for counts
_READ_AS = {FLOAT: pa.float64(), INTEGER: pa.float64(), TEXT: pa.string(), FLAG: pa.bool_()}
_STORED_AS = {FLOAT: pa.float64(), INTEGER: pa.int64(), TEXT: pa.string(), FLAG: pa.bool_()}
_BLOCK_BYTES = 1 << 23  # a line must be shorter than this
_SCHEMA = pa.schema([("node", pa.string()), *((name, _READ_AS[kind]) for name, kind in event_fields().items())])
_TABLES_OF: dict[str, list[str]] = defaultdict(list)  # by kind of event
for _name, _table in TABLES.items():
    for _kind in _table.kinds:
        _TABLES_OF[_kind].append(_name)


class Builder:
    """Builds the tables of a run from its files of events, part by part: whole ones while it runs, the rest at last."""

    def __init__(self, events: Path) -> None:
        self._events = events
        self._taken: set[Path] = set()
        self._rows: dict[str, list[pa.Table]] = {name: [] for name in TABLES}

    def take_whole_parts(self) -> None:
        """Take the parts that nothing is written to any more: those that another one of the same writer follows."""
        found = parts(self._events)
        self._take(part for part, following in pairwise(found) if writer_of(part) == writer_of(following))

    def tables(self) -> dict[str, pa.Table]:
        """Return every table of ``testbed.results.columns``, ordered by time, when the run has ended."""
        self._take(parts(self._events))
        return {name: _finished(pa.concat_tables(self._rows[name]), table) if self._rows[name] else _empty(table)
                for name, table in TABLES.items()}  # fmt: skip

    def _take(self, found: Iterable[Path]) -> None:
        for path in found:
            if path not in self._taken:
                self._taken.add(path)
                events = read_events(path)
                kinds = events["kind"].combine_chunks()
                for name in {table for kind in kinds.unique().to_pylist() for table in _TABLES_OF.get(kind, ())}:
                    self._rows[name].append(_select(events, TABLES[name]))


def build(events: Path) -> dict[str, pa.Table]:
    """Return every table of ``testbed.results.columns`` from the files of a directory, ordered by time."""
    return Builder(events).tables()


def read_events(path: Path) -> pa.Table:
    """Return the events of one part, with all known fields as columns. Ignore a last line without a newline."""
    part = PartReader(path)
    data = part.lines()
    options = pj.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")
    try:
        if part.damaged:
            raise pa.ArrowInvalid(path)
        if not data:
            return _SCHEMA.empty_table()
        table = pj.read_json(pa.BufferReader(data), pj.ReadOptions(block_size=_BLOCK_BYTES), options)
    except pa.ArrowInvalid:
        return _read_by_line(data, path, part.damaged)
    return table.select(_SCHEMA.names)


def write(directory: Path, tables: dict[str, pa.Table]) -> None:
    """Write one ``<name>.parquet`` per table; unit and meaning of a column are its field metadata."""
    directory.mkdir(exist_ok=True)
    for name, table in tables.items():
        with atomic.replacing(directory / f"{name}.parquet") as temporary:
            pq.write_table(table, temporary, compression="zstd")


def read(run: Path, names: Iterable[str] = tuple(TABLES)) -> dict[str, pd.DataFrame]:
    """Return tables of a run directory as pandas frames: from Parquet if it exists, else from the events."""
    wanted = list(names)
    stored = {name: run / "tables" / f"{name}.parquet" for name in wanted}
    if all(path.is_file() for path in stored.values()):
        return {name: frame(_stored(path)) for name, path in stored.items()}
    built = build(run / "events")
    return {name: frame(built[name]) for name in wanted}


def _stored(path: Path) -> pa.Table:
    # pq.read_table looks for a partitioned data set first, which takes longer than reading a small file
    with pq.ParquetFile(path) as file:
        table = file.read(use_threads=False)
    known = set(table.column_names)
    for column in TABLES[path.stem].columns:  # a run of an earlier release lacks newer columns
        if column.name not in known:
            field = _described(column)
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table


def frame(table: pa.Table) -> pd.DataFrame:
    """Return a pandas frame; integers with gaps become nullable integers."""
    import pandas as pd

    nullable = {pa.int64(): pd.Int64Dtype()}
    gaps = {column.type for column in table.columns if column.null_count}
    result: pd.DataFrame = table.to_pandas(types_mapper=lambda kind: nullable.get(kind) if kind in gaps else None)
    return result


def _select(events: pa.Table, table: Table) -> pa.Table:
    needed = {"node", "t", "t0", *(column.field for column in table.columns if column.field)}
    return events.select(sorted(needed)).filter(pc.is_in(events["kind"], pa.array(table.kinds)))


def _empty(table: Table) -> pa.Table:
    return _finished(_select(_SCHEMA.empty_table(), table), table)


def _finished(rows: pa.Table, table: Table) -> pa.Table:
    rows = rows.take(np.argsort(rows["t"].to_numpy(), kind="stable"))  # stable: one writer's events keep their order
    arrays = {column.name: _column(rows, column) for column in table.columns}
    if "achieved_bps" in arrays:
        arrays |= _rates(rows)
    described = [_described(column) for column in table.columns]
    return pa.table(list(arrays.values()), schema=pa.schema(described))


def _described(column: Column) -> pa.Field:
    about = {"unit": column.unit, "meaning": column.meaning}
    return pa.field(column.name, _STORED_AS[column.type], metadata=about)


def _column(rows: pa.Table, column: Column) -> pa.ChunkedArray | pa.Array:
    if column.name == "node":
        return rows["node"]
    if column.name == "duration_s":
        return pc.subtract(rows["t"], rows["t0"])
    if not column.field:
        return pa.nulls(len(rows), _STORED_AS[column.type])
    return pc.cast(rows[column.field], _STORED_AS[column.type], safe=False)


def _rates(rows: pa.Table) -> dict[str, Any]:
    """Return the mean rate of each link since its previous sample; counters that fell (restart) give no rate."""
    samples = rows.select(["link", "t", "bytes"]).to_pandas()
    change = samples.groupby("link", sort=False)[["t", "bytes"]].diff()
    rate = (change["bytes"] * 8 / change["t"]).where((change["t"] > 0) & (change["bytes"] >= 0))
    return {"achieved_bps": pa.array(rate, pa.float64(), from_pandas=True),
            "interval_s": pa.array(change["t"], pa.float64(), from_pandas=True)}  # fmt: skip


def _read_by_line(data: bytes, path: Path, damaged: bool) -> pa.Table:
    """Read line by line; skip and count lines and fields that are invalid. ``damaged``: the file's end is not there."""
    events, lost = [], 0
    for line in data.split(b"\n"):
        try:
            event = json.loads(line) if line.strip() else None
        except ValueError:
            event, lost = None, lost + 1
        if isinstance(event, dict):
            events.append({field.name: _fitting(event.get(field.name), field.type) for field in _SCHEMA})
    if lost or damaged:
        lines = "lines after a damaged place" if damaged else f"{lost} damaged line(s)"
        last = max((event["t"] for event in events if event["t"] is not None), default=0.0)
        message = f"{path.name}: {lines} were left out of the tables"
        warning = {"t": last, "kind": "warning", "node": writer_of(path), "message": message}
        events.append({**dict.fromkeys(_SCHEMA.names), **warning})
    return pa.Table.from_pylist(events, schema=_SCHEMA)


def _fitting(value: Any, kind: pa.DataType) -> Any:
    if kind == pa.float64():
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    expected = bool if kind == pa.bool_() else str
    return value if isinstance(value, expected) else None
