"""Compare runs, or the points of a sweep: a table (terminal, CSV, LaTeX) and a figure.

For runs, also the simulator's error, if one ran in both worlds. For a sweep, also the best point, with the interval
over seeds and how many of them decide it, and a page (HTML).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from testbed.cli.options import Outcome, add_base, add_runs, add_target, base_of, sweep_among, target_of, whole
from testbed.target import Target

HELP = "compare runs, or the points of a sweep: conclusion, table, CSV, LaTeX, figure"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    add_base(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("comparison"),
        metavar="DIR",
        help="folder for comparison.csv, .tex, .png and .pdf, and for a sweep also .html; default: comparison/",
    )
    parser.add_argument(
        "--columns", type=whole, choices=(1, 2), default=2, help="columns of a paper that the figure fills; default: 2"
    )
    add_target(parser)


def execute(arguments: argparse.Namespace) -> Outcome:
    from analysis.comparable import coarse, frames_and_payload, unequal_faults, unequal_steps
    from analysis.compare import comparison, write
    from analysis.load import load
    from analysis.metrics import simulation_errors
    from analysis.report.conclusion import fallen, sharing

    target = target_of(arguments.target)
    if sweep := sweep_among(arguments.runs, arguments.base):
        return _sweep(sweep, target, arguments)
    runs = load(arguments.runs)
    rows = comparison(runs, target)
    errors = simulation_errors(runs)
    files = write(runs, rows, arguments.out, arguments.columns)
    if arguments.json:
        paths = [str(path) for path in files]
        return {"kind": "comparison", "runs": rows, "simulation_errors": errors, "files": paths}
    doubts = [*fallen(rows), *unequal_steps(rows), *unequal_faults(rows), *coarse(rows)]
    _print(rows, errors, files, [*doubts, *frames_and_payload(rows), *sharing(runs)])
    return 0


def _sweep(path: Path, target: Target | None, arguments: argparse.Namespace) -> Outcome:
    from analysis.sweeps.output import by_point, write
    from analysis.sweeps.stored import compare_sweep, load_sweep
    from testbed.display import look
    from testbed.display.summary import sweep_table

    compared = compare_sweep(load_sweep(path), target, base_of(arguments.base))
    files = [str(file) for file in write(compared, arguments.out, arguments.columns)]
    if arguments.json:
        points = by_point(compared).to_dict("records")
        return {
            "kind": "sweep_comparison",
            "conclusion": compared.conclusion,
            "points": points,
            "runs": list(compared.rows),
            "files": files,
        }
    console = look.console()
    console.print(sweep_table(compared.cases))
    console.print(*compared.conclusion, sep="\n")
    console.print("written: " + ", ".join(files))
    return 0


def _print(rows: list[dict[str, Any]], errors: list[dict[str, Any]], files: list[Path], told: list[str]) -> None:
    from testbed import numbers
    from testbed.display import look
    from testbed.display.summary import comparison_table

    console = look.console()
    console.print(comparison_table(rows))
    if rows[0]["target"] is None and any(row["accuracy"] is not None for row in rows):
        console.print("the first run has no target: --target 0.9, or loss=2.5, compares times to one")
    for sentence in told:
        console.print(sentence)
    for error in errors:
        console.print(
            f"{error['name']}: simulated by {error['network']} {numbers.seconds(error['simulated_s'])}, emulated "
            f"{numbers.seconds(error['emulated_s'])} per round: {error['error']:+.1%}"
        )
    console.print("written: " + ", ".join(str(path) for path in files))
