"""Compare runs: a table (terminal, CSV, LaTeX), a figure, and the simulator's error where one ran in both worlds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cli.options import Outcome

if TYPE_CHECKING:
    from rich.table import Table

HELP = "compare runs: table, CSV, LaTeX, figure, simulated against emulated"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run directories; the first is the base")
    parser.add_argument("--out", type=Path, default=Path("comparison"), metavar="DIR",
                        help="where comparison.csv, .tex, .png and .pdf go; default: comparison/")  # fmt: skip
    parser.add_argument("--columns", type=int, choices=(1, 2), default=2,
                        help="columns of a paper that the figure fills; default: 2")  # fmt: skip
    parser.add_argument("--target", metavar="ACCURACY",
                        help="of the time to accuracy, e.g. 0.95 or '95 %%'; default: the first run's")  # fmt: skip


def execute(arguments: argparse.Namespace) -> Outcome:
    from analysis.compare import comparison, write
    from analysis.load import load
    from analysis.metrics import simulation_errors

    target = _accuracy(arguments.target)
    runs = load(arguments.runs)
    rows, errors = comparison(runs, target), simulation_errors(runs)
    files = write(runs, rows, arguments.out, arguments.columns)
    if arguments.json:
        paths = [str(path) for path in files]
        return {"kind": "comparison", "runs": rows, "simulation_errors": errors, "files": paths}
    _print(rows, errors, files)
    return 0


def _accuracy(text: str | None) -> float | None:
    from testbed.errors import ScenarioError
    from testbed.units import UnitError, parse_share

    if text is None:
        return None
    try:
        wanted = parse_share(text)
    except UnitError as error:
        raise ScenarioError(f"--target: {error}") from error
    if not 0 < wanted <= 1:
        raise ScenarioError(f"--target: {text} is no accuracy between 0 and 100 % (write '95 %' or 0.95)")
    return wanted


def _print(rows: list[dict[str, Any]], errors: list[dict[str, Any]], files: list[Path]) -> None:
    from analysis.compare import STARRED, starred
    from testbed.cli import look

    console = look.console()
    console.print(_table(rows))
    if any(map(starred, rows)):
        console.print(f"* {STARRED}", markup=False)
    for error in errors:
        console.print(f"{error['name']}: simulated {error['simulated_s']:.4g} s, emulated {error['emulated_s']:.4g} s "
                      f"per round: {error['error']:+.1%}")  # fmt: skip
    console.print("written: " + ", ".join(str(path) for path in files), markup=False)


def _table(rows: list[dict[str, Any]]) -> Table:
    from analysis import numbers
    from analysis.compare import starred
    from testbed.cli import look

    target = numbers.target(rows[0]["target"]) if rows[0]["target"] else "target"
    shown = look.table("", "run", ">accuracy", ">round time", f">to {target}", ">speed-up", ">WAN bytes", ">waiting")
    for row in rows:
        doubt = "" if row["fidelity"] == "ok" else f"\nfidelity {row['fidelity']}"
        factor = look.number(row["speed_up"], ".2f") + ("*" if starred(row) else "")
        shown.add_row(
            f"{row['label']}\n{row['run']}{doubt}", look.number(row["accuracy"]), look.seconds(row["round_time_s"]),
            look.seconds(row["time_to_target_s"]), factor, look.size(row["wan_bytes"]),
            look.share(row["waiting_share"]),
        )  # fmt: skip
    return shown
