"""Write one HTML page about runs: what was run, on what, how far to trust it, where time and bytes went.

The page holds everything itself: it opens offline, on a phone too, and prints well.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from testbed.cli.options import Outcome
from testbed.errors import ScenarioError

HELP = "write one self-contained HTML page about runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run directories; the first is the base")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: report.html in the run, or here if several")


def execute(arguments: argparse.Namespace) -> Outcome:
    from analysis.load import load
    from analysis.report.page import page
    from testbed.results import atomic

    folder = arguments.runs[0] if len(arguments.runs) == 1 else Path()
    path: Path = arguments.out or folder / "report.html"
    if path.suffix.lower() == ".pdf":
        raise ScenarioError(
            f"--out {path}: names the page; write {path.with_suffix('.html')}, and print it in a browser"
        )
    text = page(load(arguments.runs))
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, text)
    if arguments.json:
        return {"kind": "report", "file": str(path)}
    print(path)
    return 0
