"""Kinds of work on tensors, by codecs and optimizers, and their measured durations. This module does not import torch.

A table of costs is a CSV file with the columns ``row,call_us,element_ns,payload_byte_ns``: seconds of one core, by the
name of the work. A piece of work takes

    call + elements · element + payload bytes · payload_byte

The rows ``sum`` and ``copy`` are for work in memory, where bytes are the bytes read. The row ``message`` is for a
receiver, which handles one message after another. If a table has no row ``copy``, copies take no time; if it lacks
``sum`` or ``message``, the world's compute model gives their durations.

``reference_costs.csv`` was measured on the machine of ``docs/measurements/costs.md``; ``testbed calibrate --costs``
writes a table of the machine that it runs on.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from testbed.errors import ScenarioError
from testbed.units import parse_float

ENCODE = "encode"
DECODE = "decode"
ENCODE_VALUE = "encode_value"
DECODE_VALUE = "decode_value"
# rows, and kinds of ``testbed.world.Work``: by the bytes that are read
SUM = "sum"
COPY = "copy"
MESSAGE = "message"
MESSAGE_S = 60e-6
"""Seconds that a receiver of this project takes for a message: wake-up, parsing, verification."""
MESSAGE_BYTES_PER_S = 3.2e9
"""Bytes of a stream that a receiver reads and authenticates (AES-GMAC) in a second."""
ON_GPU = "cuda"  # rows of codecs on a GPU begin with it; copies are part of them
CODING = ("encode", "decode")  # kinds of ``testbed.world.Work`` that codecs do
USER_CODE = "user_code"
"""``Work.kind`` of a script until its next call. It takes no modelled time: the step that it ends in does."""
COLUMNS = "row,call_us,element_ns,payload_byte_ns"
LONGEST_S = 1000.0
"""Upper bound of the seconds that a call, an element or a byte of the payload takes."""
OPERATIONS = (ENCODE, DECODE, ENCODE_VALUE, DECODE_VALUE, "step")
_UNMEASURED = "rows"  # a codec around another one, without a row in the reference table
REFERENCE = Path(__file__).parent / "reference_costs.csv"


@dataclass(frozen=True, slots=True)
class Cost:
    """One kind of work on tensors.

    row        its row in a table of costs, such as ``fp16 encode``
    element_s  seconds per element, if the table has no such row
    """

    row: str
    element_s: float


@functools.cache
def cost_of(name: str, operation: str, element_s: float) -> Cost:
    """Return the cost of ``operation`` by the codec or optimizer that the table calls ``name``."""
    return Cost(f"{name} {operation}", element_s)


class Row(NamedTuple):
    """Seconds for one call, plus seconds for each element of the tensor and for each byte of the payload."""

    call_s: float
    element_s: float
    payload_byte_s: float = 0.0

    def seconds(self, elements: int, payload_bytes: int) -> float:
        """Return the duration of one piece of work."""
        return self.call_s + elements * self.element_s + payload_bytes * self.payload_byte_s


Costs = dict[str, Row]


def read_costs(lines: Iterable[tuple[int, str]], name: str) -> Costs:
    """Return the rows of a table from its numbered lines. Raise ``ScenarioError`` that names the line in ``name``."""
    rows: Costs = {}
    header = ""
    for number, line in lines:
        if not header:
            header = line
            continue
        row, *cells = [cell.strip() for cell in line.split(",")]
        try:
            call_us, element_ns, byte_ns = map(parse_float, cells)
        except ValueError:
            raise ScenarioError(f"{name}:{number}: expected a row's name and three numbers") from None
        if not all(0 <= cell < 1e6 * LONGEST_S for cell in (call_us, element_ns, byte_ns)):
            raise ScenarioError(f"{name}:{number}: times must be at least 0 and less than 1e9")
        if not row:
            raise ScenarioError(f"{name}:{number}: this row has no name (expected one such as 'fp16 encode')")
        if row in rows:
            raise ScenarioError(f"{name}:{number}: '{row}' is there twice (keep one of them)")
        rows[row] = Row(call_us * 1e-6, element_ns * 1e-9, byte_ns * 1e-9)
    if header != COLUMNS:
        raise ScenarioError(
            f"{name}: expected the header '{COLUMNS}' ('testbed calibrate --costs' writes such a table)"
        )
    return rows


def write_costs(rows: Costs, about: str) -> str:
    """Return the text of a table, with a comment ``about`` it."""
    lines = [
        f"{name},{row.call_s * 1e6:.3g},{row.element_s * 1e9:.4g},{row.payload_byte_s * 1e9:.4g}"
        for name, row in sorted(rows.items())
    ]
    return "\n".join([f"# {about}", COLUMNS, *lines]) + "\n"


def measured_names() -> set[str]:
    """Return the names of the codecs and optimizers in the reference table, and of the unmeasured codec."""
    return {parts_of(row)[0] for row in reference_costs()} | {_UNMEASURED}


def parts_of(row: str) -> tuple[str, str]:
    """Return the codec or optimizer of a row, and the operation, which is one of ``OPERATIONS`` in a valid row."""
    name, _, operation = row.removeprefix(f"{ON_GPU} ").rpartition(" ")
    return name, operation


@functools.cache
def reference_costs() -> Costs:
    """Return the table of the reference machine."""
    lines = REFERENCE.read_text(encoding="utf-8").splitlines()
    return read_costs([(i, line) for i, line in enumerate(lines, 1) if line and line[0] != "#"], REFERENCE.name)
