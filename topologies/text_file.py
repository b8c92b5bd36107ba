"""The text of a file that a scenario names, and errors that name file, line, problem and cure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from testbed.errors import ScenarioError
from testbed.regular_file import read_regular
from testbed.units import parse_float

MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class TextFile:
    """The text of a file. ``rows``: line number and text of each line, without comments and empty lines."""

    name: str
    text: str
    rows: tuple[tuple[int, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, name: str, text: str) -> TextFile:
        """Make a file from a text in memory."""
        numbered = ((number, line.strip()) for number, line in enumerate(text.splitlines(), start=1))
        return cls(name, text, tuple((number, line) for number, line in numbered if line and line[0] != "#"))

    @classmethod
    def read(cls, path: Path, limit_bytes: int = MAX_FILE_BYTES) -> TextFile:
        """Read a regular UTF-8 file of at most ``limit_bytes``. Raise ``ScenarioError`` if that is not possible."""
        try:
            return cls.of(path.name, read_regular(path, limit_bytes).decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            cure = f"save it as UTF-8: iconv -f latin1 -t utf-8 {path.name} > NEW; or is it not a text file?"
            problem = f"{path.name}:{line}: not valid UTF-8 at byte {error.start} ({cure})"
            raise ScenarioError(problem) from error
        except OSError as error:
            raise ScenarioError(f"{path.name}: {error.strerror}") from error

    def refuse(self, line: int | None, problem: str, cure: str = "") -> NoReturn:
        """Raise ``ScenarioError`` for a line (``None``: the whole file)."""
        where = f"{self.name}:{line}" if line else self.name
        raise ScenarioError(f"{where}: {problem} ({cure})" if cure else f"{where}: {problem}")

    def number(self, line: int, text: str, problem: str, cure: str) -> float:
        """Return a text as a finite number. Refuse any other text, with the message ``problem`` and ``cure``."""
        try:
            value = parse_float(text)
        except ValueError:
            value = math.nan
        return value if math.isfinite(value) else self.refuse(line, problem, cure)

    def numbers(self, columns: int, what: str, cure: str) -> Iterator[tuple[int, list[float]]]:
        """Yield the line number and the finite numbers of every row, which are separated by commas or blanks.

        Refuse a row without exactly ``columns`` numbers. The message says that ``what`` was expected, and the ``cure``.
        """
        if not self.rows:
            self.refuse(None, "no rows")
        for line, text in self.rows:
            problem = f"expected {what}, got '{text[:40]}'"
            values = [self.number(line, cell, problem, cure) for cell in text.replace(",", " ").split()]
            if len(values) != columns:
                self.refuse(line, problem, cure)
            yield line, values
