"""What all benchmarks share: the command line, repeated and alternating timings, and the report.

A benchmark is a module with a function ``measure``, which gets the parsed arguments and yields rows as they are
measured; its docstring is its help text. It may have ``ARGUMENTS``, keywords of ``ArgumentParser.add_argument`` by flag
or name, and ``EMULATED = True`` if it brings emulated networks up, and so has to run in a sandbox. A ``Row`` is
reported at once: as a line of a table, or as a JSON object with ``--json``; all rows also go to ``--csv FILE``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from emulation.sandbox import Sandbox, is_inside

ROOT = Path(__file__).resolve().parents[2]
SANDBOX_DEADLINE_S = 3600.0

T = TypeVar("T", int, float, str)
Row = dict[str, Any]
"""A result, by column. Names of columns include the unit. The column ``ok`` says whether it is within its tolerance."""


def listed(convert: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Return a ``type`` for ``add_argument`` that parses values separated by commas."""
    return lambda text: tuple(convert(word) for word in text.split(",") if word)


def alternate(
    steps: Mapping[str, Callable[[int], object]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Return the duration (s) of each step in each repeat, by default on the wall clock.

    Steps alternate (A B A B), so that a slow moment of the machine affects all of them. The argument of a step is the
    number of the repeat.
    """
    times_s: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(repeats):
        for name, step in steps.items():
            begin_s = clock()
            step(repeat)
            times_s[name].append(clock() - begin_s)
    return times_s


def main(name: str, module: ModuleType, given: Sequence[str]) -> int:
    """Run the benchmark ``module``. Return 1 if a row is not ``ok``, otherwise 0.

    Rows that it yields after an interrupt are also reported, before the ``KeyboardInterrupt`` is raised again.
    """
    options = _parser(name, module).parse_args(given)
    if getattr(module, "EMULATED", False) and not is_inside():
        return _in_sandbox([name, *given])
    report = _Report(options.json)
    try:
        for row in module.measure(options):
            report.add(row)
    finally:
        if options.csv:
            import pandas as pd

            pd.DataFrame(report.rows).to_csv(options.csv, index=False)
    return int(any(row.get("ok") is False for row in report.rows))


def _parser(name: str, module: ModuleType) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"testbed bench {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for flag, keywords in getattr(module, "ARGUMENTS", {}).items():
        parser.add_argument(flag, **keywords)
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write all rows to FILE")
    return parser


def _in_sandbox(arguments: Sequence[str]) -> int:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    argv = [sys.executable, "-m", "analysis.benchmarks", *arguments]
    with Sandbox(argv, env={**os.environ, "PYTHONPATH": path}) as sandbox:
        return sandbox.wait(SANDBOX_DEADLINE_S)


class _Report:
    """Prints rows as they come. A column is as wide as its name or first value, as later values are still unknown."""

    def __init__(self, as_json: bool) -> None:
        self.rows: list[Row] = []
        self._as_json = as_json
        self._widths: dict[str, int] = {}

    def add(self, row: Row) -> None:
        self.rows.append(row)
        if self._as_json:
            _say(json.dumps(row))
            return
        if row.keys() != self._widths.keys():
            self._widths = {name: max(len(name), len(_text(value)), 9) for name, value in row.items()}
            _say("  ".join(name.ljust(width) for name, width in self._widths.items()))
        _say("  ".join(_text(value).ljust(self._widths[name]) for name, value in row.items()))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "ok" if value else "OUTSIDE"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _say(line: str) -> None:
    sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()
