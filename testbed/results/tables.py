"""Converts events to tidy tables, and tables to Parquet and back. The tables are a cache of the events.

A million events take about two seconds, as Arrow reads all JSON lines of a table in one pass. If Arrow refuses them
because of a damaged line or a field of another type, they are read line by line. The table ``warnings`` counts lost
lines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from testbed.errors import TestbedError
from testbed.results import atomic
from testbed.results.columns import FLAG, FLOAT, INTEGER, TABLES, TEXT, Column
from testbed.results.events import PartReader, decoded, parts, writer_of
from testbed.results.samples import successive

if TYPE_CHECKING:
    import pandas as pd

# numbers are read as float64 first: JSON has no integers, and 2^53 suffices for counts
_READ_AS = {FLOAT: pa.float64(), INTEGER: pa.float64(), TEXT: pa.string(), FLAG: pa.bool_()}
_STORED_AS = {FLOAT: pa.float64(), INTEGER: pa.int64(), TEXT: pa.string(), FLAG: pa.bool_()}
_THREADS = 2
_BLOCK_BYTES = 1 << 23  # a line must be shorter than this
_KIND = re.compile(rb'"kind": ?"(\w+)"')
_TABLES_OF: dict[bytes, list[str]] = defaultdict(list)  # by kind of event
_SCHEMAS: dict[str, pa.Schema] = {}  # of the events, by table
for _name, _table in TABLES.items():
    for _kind in _table.kinds:
        _TABLES_OF[_kind.encode()].append(_name)
    _types = {"node": TEXT, "t": FLOAT, "t0": FLOAT} | {each.field: each.type for each in _table.columns if each.field}
    _SCHEMAS[_name] = pa.schema([(_field, _READ_AS[_type]) for _field, _type in _types.items()])


def build(events: Path) -> dict[str, pa.Table]:
    """Return every table of ``testbed.results.columns`` from the files of a directory, ordered by time."""
    with ThreadPoolExecutor(_THREADS) as pool:  # Arrow and zlib release the interpreter's lock
        read = list(pool.map(read_part, parts(events)))
    return {name: _finished([rows[name] for rows in read if name in rows], name) for name in TABLES}


def read_part(path: Path) -> dict[str, pa.Table]:
    """Return the events of one file by table, in their order. Ignore a last line without a newline.

    Lines are divided by table before Arrow reads them, as columns that an event lacks would take most of its time.
    """
    part = PartReader(path)
    lines: dict[str, list[bytes]] = defaultdict(list)
    lost = 0
    for line in part.lines().splitlines():
        if (kind := _KIND.search(line)) is None:
            lost += bool(line.strip())
        else:
            for name in _TABLES_OF.get(kind[1], ()):
                lines[name].append(line)
    found = {}
    for name, own in lines.items():
        rows, damaged = _read(own, _SCHEMAS[name])
        found[name] = _placed(rows, writer_of(path))
        lost += damaged + len(rows) - len(found[name])
    if lost or part.damaged:
        what = "lines after a damaged place" if part.damaged else f"{lost} damaged line(s)"
        warning = _warning(path, found, f"{path.name}: {what} were left out of the tables")
        found["warnings"] = pa.concat_tables([found.get("warnings", warning[:0]), warning])
    return found


def empty_frames() -> dict[str, pd.DataFrame]:
    """Return all tables, without rows."""
    return {name: frame(_finished([], name)) for name in TABLES}


class GrowingTables:
    """Reads the tables of a directory of events while it is being written, a few rows at a time.

    Arrow is not used, as starting it for each table would take longer than converting a second's events.
    ``without`` names writers whose files are not read.
    """

    def __init__(self, events: Path, without: Collection[str] = ()) -> None:
        self._events = events
        self._without = without
        self._files: dict[Path, PartReader | None] = {}  # None: the whole file has been read
        self._empty = empty_frames()

    def poll(self) -> dict[str, pd.DataFrame]:
        """Return the rows that have been written since the last call, each table ordered by time.

        Rates of links are missing, as they need the previous sample.
        """
        import pandas as pd

        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for path in parts(self._events):
            if writer_of(path) in self._without:
                continue
            reader = self._files[path] if path in self._files else PartReader(path)
            if reader is not None:
                for event in decoded(reader.lines().splitlines()):
                    for name in _TABLES_OF.get(str(event.get("kind")).encode(), ()):
                        rows[name] += [event] if isinstance(event.get("t"), float | int) else []
                self._files[path] = None if reader.ended else reader
        found = dict(self._empty)
        for name, own in rows.items():
            own.sort(key=lambda event: float(event["t"]))  # stable: one writer's events keep their order
            columns = {column.name: [_value(event, column) for event in own] for column in TABLES[name].columns}
            found[name] = pd.DataFrame(columns)
        return found


def _value(event: dict[str, Any], column: Column) -> Any:
    if column.name == "duration_s":
        return event["t"] - event.get("t0", event["t"])
    return event.get(column.field or column.name)


def _read(lines: list[bytes], schema: pa.Schema) -> tuple[pa.Table, int]:
    """Return the events of these lines, and the number of lines that cannot be read."""
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        data = pa.BufferReader(b"\n".join(lines))
        return pj.read_json(data, pj.ReadOptions(block_size=_BLOCK_BYTES), options).select(schema.names), 0
    except pa.ArrowInvalid:
        return _read_by_line(lines, schema)


def _placed(rows: pa.Table, writer: str) -> pa.Table:
    """Return the rows that have a time and, in a table with these columns, a source and a target.

    A missing node is replaced by ``writer``.
    """
    for field in ("t", "source", "target"):
        if field in rows.column_names and rows[field].null_count:
            rows = rows.filter(pc.is_valid(rows[field]))
    if rows["node"].null_count:
        at = rows.column_names.index("node")
        rows = rows.set_column(at, "node", pc.fill_null(rows["node"], writer))
    return rows


def _warning(path: Path, found: Mapping[str, pa.Table], message: str) -> pa.Table:
    schema = _SCHEMAS["warnings"]
    last = max((pc.max(rows["t"]).as_py() or 0.0 for rows in found.values()), default=0.0)
    fields = {"t": last, "kind": "warning", "node": writer_of(path), "message": message}
    return pa.Table.from_pylist([dict.fromkeys(schema.names) | fields], schema=schema)


def write(directory: Path, tables: dict[str, pa.Table]) -> None:
    """Write one ``<name>.parquet`` per table. A column's metadata has its unit and meaning."""
    directory.mkdir(exist_ok=True)
    atomic.write_together(directory, {f"{name}.parquet": _parquet(table) for name, table in tables.items()})


def _parquet(table: pa.Table) -> bytes:
    written = pa.BufferOutputStream()
    pq.write_table(table, written, compression="zstd", write_page_checksum=True)
    content: bytes = written.getvalue().to_pybytes()
    return content


def read(run: Path, names: Iterable[str] = tuple(TABLES)) -> dict[str, pd.DataFrame]:
    """Return tables of a run directory as pandas frames, from Parquet files if they are intact, else from events."""
    wanted = list(names)
    stored = {name: run / "tables" / f"{name}.parquet" for name in wanted}
    if all(path.is_file() for path in stored.values()):
        with suppress(OSError, ValueError):  # pyarrow raises these for a damaged file
            return {name: frame(_stored(path)) for name, path in stored.items()}
    if not (run / "events").is_dir():
        raise TestbedError(f"{run}: has neither tables nor events (any more); is it the run's directory?")
    built = build(run / "events")
    return {name: frame(built[name]) for name in wanted}


def _stored(path: Path) -> pa.Table:
    # pq.read_table looks for a partitioned data set first, which takes longer than reading a small file
    with path.open("rb") as content, pq.ParquetFile(content, page_checksum_verification=True) as file:
        table = file.read(use_threads=False)
    known = {field.name: field.type for field in table.schema}
    for column in TABLES[path.stem].columns:  # a run of an earlier release lacks newer columns
        if known.get(column.name, _STORED_AS[column.type]) != _STORED_AS[column.type]:
            raise ValueError(f"{path}: column {column.name} is of another type")
        if column.name not in known:
            field = _described(column)
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table


def frame(table: pa.Table) -> pd.DataFrame:
    """Return a pandas frame; integers with gaps become nullable integers."""
    import pandas as pd

    nullable = {pa.int64(): pd.Int64Dtype()}
    gaps = {column.type for column in table.columns if column.null_count}
    result: pd.DataFrame = table.to_pandas(
        types_mapper=lambda kind: nullable.get(kind) if kind in gaps else None,
        use_threads=False,  # threads take longer to start than a short run's table takes to convert
    )
    return result


def _finished(found: list[pa.Table], name: str) -> pa.Table:
    table = TABLES[name]
    rows = pa.concat_tables(found) if found else _SCHEMAS[name].empty_table()
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
    """Return the rate of each link since its previous sample; none if its counter fell, as it does at a restart."""
    links = rows["link"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    later, before = successive(links)
    interval_s = np.full(len(rows), np.nan)
    sent_bytes = np.full(len(rows), np.nan)
    for found, counter in ((interval_s, rows["t"].to_numpy()), (sent_bytes, rows["bytes"].to_numpy())):
        found[later] = counter[later] - counter[before]
    rate = np.full(len(rows), np.nan)
    np.divide(sent_bytes * 8, interval_s, out=rate, where=(interval_s > 0) & (sent_bytes >= 0))
    return {
        "achieved_bps": pa.array(rate, pa.float64(), from_pandas=True),
        "interval_s": pa.array(interval_s, pa.float64(), from_pandas=True),
    }


def _read_by_line(lines: list[bytes], schema: pa.Schema) -> tuple[pa.Table, int]:
    """Read line by line. Invalid lines are skipped and counted, and invalid fields are left out."""
    events = [{field.name: _fitting(event.get(field.name), field.type) for field in schema} for event in decoded(lines)]
    return pa.Table.from_pylist(events, schema=schema), len(lines) - len(events)


def _fitting(value: Any, kind: pa.DataType) -> Any:
    if kind == pa.float64():
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    expected = bool if kind == pa.bool_() else str
    return value if isinstance(value, expected) else None
