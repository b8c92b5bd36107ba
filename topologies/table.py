"""Reads tables of measurements with a header: recognises columns and their units by name.

A column has one of the ``ROLES``: ``rtt_ms``, ``RTT (ms)`` and ``ping [msec]`` are round trips, ``mbps`` and
``throughput_mbit_s`` rates, ``timestamp`` and ``t_s`` times, ``src`` and ``from`` the beginning of a path. If a name
does not tell the role or unit, ``columns`` does: ``{rate: bw in Mbit/s}``. Cells are separated by commas, semicolons,
tabs, bars or blanks. Times are numbers, which may count from 1970, or ISO 8601. The earliest time of a file becomes 0.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import NoReturn

from testbed.units import parse_float
from topologies.foreign_units import quantity_of, unit_of
from topologies.text_file import TextFile

ROLES = ("time", "from", "to", "rate", "delay", "rtt", "loss")
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
MISSING = frozenset({"", "-", "--", "nan", "na", "n/a", "null", "none", "?"})
_DIMENSIONS = {"time": "time", "rate": "rate", "delay": "time", "rtt": "time", "loss": "share"}
# The first role with a matching word wins: "round_trip_time" has words of a round trip and of a time.
_WORDS = {
    "rtt": {"rtt", "rtts", "ping", "pings", "roundtrip", "trip"},
    "delay": {"delay", "owd", "oneway"},
    "loss": {"loss", "losses", "lost", "plr", "packetloss"},
    "rate": {"rate", "bandwidth", "bw", "throughput", "goodput", "speed", "capacity", "bitrate"},
    "time": {"time", "t", "timestamp", "ts", "epoch", "unixtime", "date", "datetime"},
    "from": {"from", "src", "source", "origin", "sender", "client", "a"},
    "to": {"to", "dst", "dest", "destination", "target", "receiver", "server", "b"},
}
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SPREADS = {"std", "stddev", "sd", "mdev", "var", "min", "max", "jitter", "p5", "p95", "p99", "error", "count"}
_AMBIGUOUS = "latency"  # some tools mean the round trip, and others one way
_RIVALS = {"rtt": "delay", "delay": "rtt"}  # if the user names the column of the one, a column of the other is ignored
_SINCE_1970 = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (1e8, 1.0))  # the unit (s) of times from a number on
_NAMES = {"rate": "rate_mbit_s", "rtt": "rtt_ms", "loss": "loss", "time": "time_s", "from": "src", "to": "dst"}
_EXAMPLE = {"rate": "Mbit/s", "delay": "ms", "rtt": "ms", "loss": "%", "time": "s"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column. ``scale``: the factor from its numbers to SI units; ``None`` if no unit is stated."""

    name: str
    number: int
    role: str
    scale: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """A row. ``time_s``: seconds since the earliest time of the file; 0 if the table has no times."""

    line: int
    cells: tuple[str, ...]
    time_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Table:
    """The table of a file.

    names    the names of all columns
    columns  the columns with a role
    notes    assumptions that reading made
    """

    file: TextFile
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: list[Row] = field(default_factory=list, repr=False)
    notes: tuple[str, ...] = ()

    def having(self, *roles: str) -> list[Column]:
        """Return the columns with one of these roles."""
        return [column for column in self.columns if column.role in roles]

    def column(self, *roles: str) -> Column | None:
        """Return the only column with one of these roles, or ``None``. Raise ``ScenarioError`` if there are several."""
        found = self.having(*roles)
        if len(found) > 1:
            names = ", ".join(f"'{column.name}'" for column in found)
            problem = f"has {len(found)} columns for a {roles[0]}: {names}"
            self.refuse(problem, f"remove the others, or choose: columns: {{{found[0].role}: {found[0].name}}}")
        return found[0] if found else None

    def needed(self, what: str, *roles: str) -> Column:
        """Return the only column with one of these roles. Raise ``ScenarioError`` if there is none, or several.

        what  the quantity, for the message
        """
        found = self.column(*roles)
        if found is None:
            self.refuse(
                f"has no column for a {what}: its columns are {_listed(self.names)}", _naming(roles, self.names)
            )
        return found

    def refuse(self, problem: str, cure: str) -> NoReturn:
        """Raise ``ScenarioError`` that names the line of the header."""
        self.file.refuse(self.file.rows[0][0], problem, cure)

    def pairs(self) -> dict[tuple[str, str], list[Row]]:
        """Return the rows by their two ends; all rows by ``("", "")`` if the table has no columns for both ends."""
        source = self.column("from")
        target = self.column("to")
        if source is None or target is None:
            return {("", ""): self.rows}
        found: dict[tuple[str, str], list[Row]] = {}
        for row in self.rows:
            found.setdefault((row.cells[source.number], row.cells[target.number]), []).append(row)
        return found

    def value(self, row: Row, column: Column) -> float | None:
        """Return a cell in SI units, halved if it is a round trip; ``None`` if it is empty.

        Raise ``ScenarioError`` if it is not a number, or its unit is unknown.
        """
        cell = row.cells[column.number]
        if cell.lower() in MISSING:
            return None
        half = 0.5 if column.role == "rtt" else 1.0
        if column.scale is not None:
            return number(self.file, row, cell) * column.scale * half
        with_unit = quantity_of(cell)
        if with_unit is None or with_unit[1] is None or with_unit[1][0] != _DIMENSIONS[column.role]:
            self.refuse(f"column '{column.name}' has no unit", _with_unit(column.role, column.name))
        return with_unit[0] * with_unit[1][1] * half


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name[:30]}'" for name in names[:12]) + (", …" if len(names) > 12 else "")


def _naming(roles: tuple[str, ...], names: tuple[str, ...]) -> str:
    ambiguous = next((name for name in names if _AMBIGUOUS in name.lower()), None)
    if ambiguous is not None and "rtt" in roles:
        return (
            f"is '{ambiguous}' the round trip, or one way? Say so: columns: {{rtt: {ambiguous}}} "
            f"or columns: {{delay: {ambiguous}}}"
        )
    role = roles[-1]
    unit = f" in {_EXAMPLE[role]}" if role in _EXAMPLE else ""
    return f"name it {_NAMES[role]} in the header, or say which it is: columns: {{{role}: NAME{unit}}}"


def _with_unit(role: str, name: str) -> str:
    return f"say which: columns: {{{role}: {name} in {_EXAMPLE[role]}}}, or '{name} ({_EXAMPLE[role]})' in the header"


def number(file: TextFile, row: Row, cell: str) -> float:
    """Return a cell as a finite number. Raise ``ScenarioError`` if it is none."""
    try:
        value = parse_float(cell)
    except ValueError:
        many = len(row.cells)
        about = f"'{cell[:40]}' is not a number"
        if re.fullmatch(r"[-+]?[0-9]+,[0-9]+", cell):
            about += f"; write {cell.replace(',', '.')}"
        file.refuse(row.line, "expected two numbers" if many == 2 else "expected a number", about)
    if not math.isfinite(value):
        file.refuse(row.line, "times and values must be finite", f"'{cell}' is not finite")
    return value


def separator_of(line: str) -> str | None:
    """Return the most frequent separator of a header line; ``None`` for blanks."""
    found = max(SEPARATORS, key=line.count)
    return found if found in line else None


def is_header(line: str) -> bool:
    """Return whether a line is the header of a table.

    If cells are separated by blanks, one of them must be a known name of a column. Otherwise, one must have a letter
    other than the ``e`` of numbers.
    """
    cells = _cells_of(line, separator_of(line))
    lettered = [cell for cell in cells if re.search(r"[a-df-z]", cell.lower())]
    known = [cell for cell in cells if role_of(cell) is not None]
    return bool(known) if separator_of(line) is None else bool(lettered)


def _cells_of(line: str, separator: str | None) -> list[str]:
    if separator is None:
        return line.split()
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator, skipinitialspace=True))]
    except csv.Error:
        return [cell.strip() for cell in line.split(separator)]


def role_of(name: str) -> tuple[str, float | None] | None:
    """Return the role and scale of a column by its name, or ``None``. The scale is ``None`` if the name has no unit."""
    spaced = re.sub(r"(?<=[a-z]{3})(?=[A-Z])", " ", name)
    words = [word for word in re.split(r"[^A-Za-z0-9%/µμ]+", spaced) if word]
    words = [part for word in words for part in ([word] if unit_of(word) else word.split("/"))]
    unit, words = _unit_at_end(words)
    lower = {word.lower() for word in words}
    if lower & _SPREADS:
        return None
    role = next((role for role, known in _WORDS.items() if lower & known), None)
    if role is None and not lower and unit is not None and unit[0] == "rate":
        role = "rate"
    if role is None or (role in ("from", "to") and unit is not None):
        return None
    dimension = _DIMENSIONS.get(role)
    if unit is not None and unit[0] != dimension:
        return None
    return role, unit[1] if unit is not None else 1.0 if role in ("loss", "from", "to") else None


def _unit_at_end(words: list[str]) -> tuple[tuple[str, float] | None, list[str]]:
    """Return the unit that the last words form, if any, and the remaining words."""
    for count in (3, 2, 1):
        text = "/".join(words[-count:])
        text = text.lower() if text.isupper() else text
        if len(words) >= count and (unit := unit_of(text)) is not None:
            return unit, words[:-count]
    return None, words


def read_table(file: TextFile, columns: Mapping[str, str] | None = None) -> Table:
    """Return the table of a file. Raise ``ScenarioError`` that names file, line and cure.

    columns  maps a role to the name of a column, or to ``NAME in UNIT``
    """
    line, text = file.rows[0]
    names = tuple(_cells_of(text, separator_of(text)))
    if len({name.lower() for name in names}) != len(names):
        file.refuse(line, "expected the header 'time_s,rate_mbit_s'", "one column of times, none twice")
    found = _columns(file, names, columns or {})
    rows = list(_rows(file, names))
    time = [column for column in found if column.role == "time"]
    notes: tuple[str, ...] = ()
    unknown = [name for number, name in enumerate(names) if number not in {column.number for column in found}]
    if unknown:
        notes = (f"columns without effect: {_listed(tuple(unknown))}",)
        if not time:
            notes += _of_times(names, unknown, rows, found)
    if len(time) > 1:
        several = ", ".join(f"'{column.name}'" for column in time)
        cure = f"remove the others, or choose: columns: {{time: {time[0].name}}}"
        file.refuse(line, f"has {len(time)} columns of times: {several}", cure)
    if time and rows:
        rows, more = _from_0(file, rows, time[0])
        notes += more
    return Table(file, names, tuple(found), rows, notes)


def _of_times(names: tuple[str, ...], unknown: list[str], rows: list[Row], known: list[Column]) -> tuple[str, ...]:
    """Return a note on the first unknown column that looks like times; empty if there is none.

    Its cells are dates, or numbers that grow from row to row of each pair.
    """
    ends = [column.number for column in known if column.role in ("from", "to")]
    pairs: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        pairs.setdefault(tuple(row.cells[number] for number in ends), []).append(row)
    for name in unknown:
        number = names.index(name)
        dated = bool(rows) and all(_DATE.match(row.cells[number]) for row in rows)
        if dated or _grows(number, list(pairs.values())):
            since_1970 = dated or float(rows[0].cells[number]) >= _SINCE_1970[-1][0]
            text = name if since_1970 else f"{name} in s"
            return (
                f"'{name}' looks like times, which are read as such with 'columns: {{time: {text}}}', or on the "
                f"command line with --set columns.time='{text}'",
            )
    return ()


def _grows(number: int, pairs: list[list[Row]]) -> bool:
    """Return whether the numbers of a column grow from row to row of each pair, and some pair has several rows."""
    try:
        values = [[parse_float(row.cells[number]) for row in rows] for rows in pairs]
    except ValueError:
        return False
    grown = all(first < second for each in values for first, second in pairwise(each))
    return grown and any(len(each) > 1 for each in values)


def _columns(file: TextFile, names: tuple[str, ...], chosen: Mapping[str, str]) -> list[Column]:
    line = file.rows[0][0]
    told: dict[int, Column] = {}
    for role, text in chosen.items():
        if role not in ROLES:
            file.refuse(
                line, f"columns: '{role}' is not one of {', '.join(ROLES)}", "e.g. columns: {rate: bw in Mbit/s}"
            )
        name, _, unit_text = text.partition(" in ") if text not in names else (text, "", "")
        number = next((number for number, each in enumerate(names) if each.lower() == name.strip().lower()), None)
        if number is None:
            file.refuse(line, f"columns: there is no column '{name}'", f"its columns are {_listed(names)}")
        unit = unit_of(unit_text) if unit_text else None
        if unit_text and (unit is None or unit[0] != _DIMENSIONS.get(role)):
            file.refuse(line, f"columns: '{unit_text}' is not a unit of a {role}", f"e.g. {_EXAMPLE.get(role, 'none')}")
        by_name = role_of(f"{role} {name}") if unit is None else None
        scale = unit[1] if unit else by_name[1] if by_name else None
        told[number] = Column(names[number], number, role, scale)
    found = []
    for number, name in enumerate(names):
        known = role_of(name)
        if number in told:
            found.append(told[number])
        elif known is not None and known[0] not in chosen and _RIVALS.get(known[0]) not in chosen:
            found.append(Column(name, number, *known))
    return found


def read_matrix(file: TextFile) -> Table | None:
    """Return the table of a matrix file; it has no columns with roles. ``None`` if the file is not a matrix.

    A matrix has the same names in its first row and its first column. Raise ``ScenarioError`` if a row has another
    length than the first one.
    """
    separator = separator_of(file.rows[0][1])
    first = [_cells_of(text, separator) for _, text in file.rows]
    names = first[0]
    if len(first) > 1 and len(names) == len(first[1]) - 1:  # the first cell is empty, and was stripped
        names = ["", *names]
    if len(first) < 3 or len({*names[1:]} & {cells[0] for cells in first[1:] if cells}) < 2:
        return None
    return Table(file, tuple(names), (), list(_rows(file, tuple(names))))


def _rows(file: TextFile, names: tuple[str, ...]) -> Iterator[Row]:
    """Yield all rows. Raise ``ScenarioError`` for a row with another number of cells than the header."""
    separator = separator_of(file.rows[0][1])
    for line, text in file.rows[1:]:
        cells = _cells_of(text, separator)
        if separator == "\t" and len(cells) < len(names):
            cells += [""] * (len(names) - len(cells))  # empty cells at the end of a line were stripped
        if len(cells) != len(names):
            many = "expected two numbers" if len(names) == 2 else f"expected {len(names)} cells, found {len(cells)}"
            file.refuse(line, many, f"{len(names)} cells as in the header: {','.join(names)}")
        yield Row(line, tuple(cells))


def _from_0(file: TextFile, rows: list[Row], column: Column) -> tuple[list[Row], tuple[str, ...]]:
    """Return the rows with times since the earliest one, and a note if the earliest one is not 0."""
    is_date = _DATE.match(rows[0].cells[column.number]) is not None
    scale = 1.0 if is_date else _time_scale(file, rows[0], column)
    times_s = [_time(file, row, row.cells[column.number], is_date) * scale for row in rows]
    first_s = min(times_s)
    notes: tuple[str, ...] = ()
    if first_s:
        notes = (f"the first time, {rows[times_s.index(first_s)].cells[column.number]}, became 0",)
    timed = (Row(row.line, row.cells, round(time_s - first_s, 6)) for row, time_s in zip(rows, times_s, strict=True))
    return list(timed), notes


def _time_scale(file: TextFile, row: Row, column: Column) -> float:
    if column.scale is not None:
        return column.scale
    first = number(file, row, row.cells[column.number])
    found = next((scale for least, scale in _SINCE_1970 if first >= least), None)
    if found is None:
        file.refuse(file.rows[0][0], f"column '{column.name}' has no unit", _with_unit("time", column.name))
    return found


def _time(file: TextFile, row: Row, cell: str, is_date: bool) -> float:
    if not is_date:
        return number(file, row, cell)
    try:
        time = datetime.fromisoformat(cell)
    except ValueError:
        file.refuse(row.line, f"'{cell[:40]}' is not a time", "write ISO 8601, e.g. 2024-06-10T12:00:00Z, or seconds")
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
