"""Reproduce a figure that shows what a technique claims: run what is missing, write CSV, PNG, SVG, PDF and a verdict.

The verdict lists every claim with its measured value and pass, fail or not resolved. `--quick` is a small version with
fewer points and seeds: more of its claims stay unresolved. A study of your own is named by its place:
`testbed figure ./my_figure.py:MY_STUDY`. The directory of a sweep gives the figure of that sweep, as PNG, SVG and PDF.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.studies import FIGURES, VERDICTS
from testbed.cli.options import (
    Outcome,
    add_base,
    add_cluster,
    add_target,
    base_of,
    check_jobs,
    target_of,
    whole,
)
from testbed.errors import ScenarioError
from testbed.facilities import BACK_ENDS
from testbed.numbers import counted

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from analysis.studies.study import Request
    from testbed.execution.sweep import SweepJob

HELP = "reproduce a figure from a paper, with a verdict on every claim"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        help=f"{', '.join(FIGURES)}; "
        f"techniques beside their twins: {', '.join(VERDICTS)}; "
        "or package.module:NAME, or file.py:NAME; or the directory of a sweep",
    )
    parser.add_argument("--quick", action="store_true", help="few points and seeds: minutes instead of hours")
    parser.add_argument("--on", choices=BACK_ENDS, nargs="+", default=[], help="back ends; default: the study's own")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=V,V",
        dest="settings",
        help="a setting of every run; if the study does not vary it, each value makes a figure",
    )
    parser.add_argument("--only", default="", metavar="LABEL,…", help="only these variants")
    parser.add_argument("--seeds", type=whole, metavar="N", help="number of seeds; default: the study's own")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: figures/NAME or figures/NAME-quick")
    parser.add_argument("--jobs", type=whole, metavar="N", help="runs at once; default: cores in virtual time, else 1")
    add_cluster(parser)
    add_base(parser)
    add_target(parser)


def execute(arguments: argparse.Namespace) -> Outcome:
    from testbed.results.rundir import is_run
    from testbed.results.sweep_index import is_sweep

    if is_sweep(Path(arguments.name)):
        return _of_sweep(arguments)
    if is_run(Path(arguments.name)):
        cure = f"its figure is {arguments.name}/figure.png; `testbed compare {arguments.name}` makes one for a paper"
        raise ScenarioError(f"{arguments.name}: is a run, but this takes the name of a study or a sweep ({cure})")
    from analysis.studies.engine import execute as make
    from analysis.studies.study import find

    if given := [name for name in ("base", "target") if getattr(arguments, name)]:
        raise ScenarioError(f"--{given[0]}: is only for a sweep; a study has its own")
    name, study = find(arguments.name)
    check_jobs(arguments.jobs)
    request = _request(arguments, name)

    def watch(job: SweepJob) -> AbstractContextManager[Any]:
        from testbed.cli.sweep_progress import progress

        if not arguments.json:
            with suppress(OSError):  # a pipe without a reader must not end the runs
                print(f"{job.directory.name}: {counted(len(job.points), 'run')}, {job.at_once}", flush=True)
        return progress(job, quiet=arguments.json)

    verdict = make(name, study, request, watch)
    if arguments.json:
        return {"kind": "figure", "directory": str(request.out), **verdict}
    with suppress(OSError, SystemExit):  # rich exits at a closed pipe
        _print(verdict, request.out)
    return 0


def _of_sweep(arguments: argparse.Namespace) -> Outcome:
    """Draw a sweep that has been run. Raise ``ScenarioError`` for options that only studies have."""
    from analysis.sweeps.output import pictures
    from analysis.sweeps.stored import compare_sweep, load_sweep

    of_studies = ("quick", "on", "settings", "only", "seeds", "jobs", "cluster")
    if given := [name for name in of_studies if getattr(arguments, name)]:
        option = {"settings": "set"}.get(given[0], given[0])
        raise ScenarioError(f"--{option}: is for a study; {arguments.name} is a sweep, which has been run already")
    sweep = load_sweep(Path(arguments.name))
    compared = compare_sweep(sweep, target_of(arguments.target), base_of(arguments.base))
    files = pictures(compared, arguments.out or Path("figures") / sweep.name, sweep.name)
    if arguments.json:
        return {"kind": "figure", "files": [str(path) for path in files]}
    for path in files:
        print(path)
    return 0


def _request(arguments: argparse.Namespace, name: str) -> Request:
    from analysis.studies.study import Request
    from testbed.scenario.sweep import from_options

    axes = from_options(arguments.settings, (), arguments.seeds).axes
    return Request(
        out=arguments.out or Path("figures") / (name + ("-quick" if arguments.quick else "")),
        quick=arguments.quick,
        on=tuple(arguments.on),
        seeds=arguments.seeds,
        jobs=arguments.jobs,
        settings={axis.paths[0]: tuple(value for (value,) in axis.steps) for axis in axes},
        only=tuple(label for label in arguments.only.split(",") if label),
        cluster=arguments.cluster,
    )


def _print(verdict: dict[str, Any], out: Path) -> None:
    from testbed import numbers
    from testbed.display import look

    console = look.console()
    if verdict["means"]:
        rows = [[numbers.cell(value) for value in row.values()] for row in verdict["means"]]
        console.print(look.table("", *verdict["means"][0], rows=rows))
    if verdict["assertions"]:
        rows = [
            [each["verdict"], each["claim"], "\n".join(filter(None, (each["measured"], each["why"])))]
            for each in verdict["assertions"]
        ]
        console.print(
            look.table(f"{verdict['title']} ({verdict['source']})", "verdict", "claim", "measured", rows=rows)
        )
    told = [f"{count} {state}" for state, count in verdict["summary"].items()] if verdict["assertions"] else []
    console.print(f"{', '.join(told) or 'no claims'}; written to {out}", soft_wrap=True)
