"""Write runs in other tools' formats. Several runs of one scenario lie side by side in one Perfetto trace."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from testbed.cli.options import Outcome, add_runs, whole
from testbed.errors import ScenarioError

HELP = "write runs, or those of a sweep, for Perfetto, as CSV, as traces for other simulators, or for a tracker"
FORMATS = ("perfetto", "csv", "chakra", "goal", "tensorboard", "wandb", "mlflow")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    parser.add_argument("--format", choices=FORMATS, default="perfetto", help="default: perfetto")
    parser.add_argument("--round", type=whole, metavar="N", help="in traces, only this training round, counted from 0")
    parser.add_argument("--out", type=Path, default=Path("export"), metavar="DIR", help="default: export/")


def execute(arguments: argparse.Namespace) -> Outcome:
    from analysis import export
    from analysis.load import load
    from analysis.sweeps.stored import runs_of

    write = export.FORMATS[arguments.format]
    if arguments.round is not None:
        if arguments.format not in export.TRACES:
            traces = " and ".join(export.TRACES)
            raise ScenarioError(f"--round: has no effect on {arguments.format}, only on {traces}; remove it")
        write = partial(export.TRACES[arguments.format], round_=arguments.round)
    written = write(load(runs_of(arguments.runs)), arguments.out)
    if arguments.json:
        return {"kind": "export", "format": arguments.format, "files": [str(path) for path in written]}
    for path in written:
        print(path)
    if arguments.format == "perfetto":
        print("open it at https://ui.perfetto.dev (the file stays on this machine)")
    return 0
