"""Write one HTML page about runs or a sweep: what was run, on what, how far to trust it, where time and bytes went.

The page holds everything itself: it opens offline, on a phone too, and prints well.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from testbed.cli.options import Outcome, add_base, add_runs, add_target, base_of, sweep_among, target_of
from testbed.errors import ScenarioError

HELP = "write one self-contained HTML page about runs or a sweep"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    add_base(parser)
    add_target(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="default: report.html in the run or sweep, or here if several"
    )


def execute(arguments: argparse.Namespace) -> Outcome:
    from testbed.results import atomic

    folder = arguments.runs[0] if len(arguments.runs) == 1 else Path()
    path: Path = arguments.out or folder / "report.html"
    if path.suffix.lower() == ".pdf":
        raise ScenarioError(
            f"--out {path}: a report is an HTML page; write {path.with_suffix('.html')}, and print it in a browser"
        )
    text = _page(arguments)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, text)
    if arguments.json:
        return {"kind": "report", "file": str(path)}
    print(path)
    return 0


def _page(arguments: argparse.Namespace) -> str:
    if sweep := sweep_among(arguments.runs, arguments.base):
        from analysis.report.sweep import page as page_of_sweep
        from analysis.sweeps.stored import compare_sweep, load_sweep

        target = target_of(arguments.target)
        return page_of_sweep(compare_sweep(load_sweep(sweep), target, base_of(arguments.base)))
    if arguments.target is not None:
        raise ScenarioError("--target: is only for a sweep; to compare runs, use `testbed compare`")
    from analysis.load import load
    from analysis.report.page import page

    return page(load(arguments.runs))
