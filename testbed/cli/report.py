"""Write one HTML page about runs: what was run, on what, how far to trust it, where time and bytes went.

The page holds everything itself: it opens offline, on a phone too, and prints well (to paper or to PDF).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

HELP = "write one self-contained HTML page about runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run directories; the first is the base")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: report.html in the run, or here if several")


def execute(arguments: argparse.Namespace) -> int:
    from analysis.load import load
    from analysis.report.page import page
    from testbed.results import atomic

    text = page(load(arguments.runs))
    folder = arguments.runs[0] if len(arguments.runs) == 1 else Path()
    path = arguments.out or folder / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, text)
    print(json.dumps({"kind": "report", "file": str(path)}) if arguments.json else str(path))
    return 0
