"""Compare runs: a table (terminal, CSV, LaTeX), a figure, and the simulator's error where one ran in both worlds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from testbed.cli.options import Outcome, measured, whole
from testbed.errors import ScenarioError

HELP = "compare runs: table, CSV, LaTeX, figure, simulated against emulated"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run directories; the first is the base")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("comparison"),
        metavar="DIR",
        help="where comparison.csv, .tex, .png and .pdf go; default: comparison/",
    )
    parser.add_argument(
        "--columns", type=whole, choices=(1, 2), default=2, help="columns of a paper that the figure fills; default: 2"
    )
    parser.add_argument(
        "--target", metavar="ACCURACY", help="of the time to accuracy, e.g. 0.95 or '95 %%'; default: the first run's"
    )


def execute(arguments: argparse.Namespace) -> Outcome:
    from analysis.compare import comparison, write
    from analysis.load import load
    from analysis.metrics import simulation_errors
    from testbed.units import parse_share

    target = measured(arguments.target, "--target", parse_share)
    if target is not None and not 0 < target <= 1:
        raise ScenarioError(f"--target: {arguments.target} is no accuracy between 0 and 100 % (write '95 %' or 0.95)")
    runs = load(arguments.runs)
    rows = comparison(runs, target)
    errors = simulation_errors(runs)
    files = write(runs, rows, arguments.out, arguments.columns)
    if arguments.json:
        paths = [str(path) for path in files]
        return {"kind": "comparison", "runs": rows, "simulation_errors": errors, "files": paths}
    _print(rows, errors, files)
    return 0


def _print(rows: list[dict[str, Any]], errors: list[dict[str, Any]], files: list[Path]) -> None:
    from testbed import numbers
    from testbed.display import look
    from testbed.display.summary import comparison_table

    console = look.console()
    console.print(comparison_table(rows))
    if rows[0]["target"] is None and any(row["accuracy"] is not None for row in rows):
        console.print("the first run has no target: --target ACCURACY compares times to one")
    for error in errors:
        console.print(
            f"{error['name']}: simulated by {error['network']} {numbers.seconds(error['simulated_s'])}, emulated "
            f"{numbers.seconds(error['emulated_s'])} per round: {error['error']:+.1%}"
        )
    console.print("written: " + ", ".join(str(path) for path in files))
