"""Reproduce a figure from a paper: run what is missing, then write CSV, PNG, SVG, PDF and a verdict.

The verdict lists every claim with its measured value and pass, fail or not resolved. `--quick` is a small version with
fewer points and seeds: more of its claims stay unresolved.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cli.options import BACK_ENDS, check_jobs

if TYPE_CHECKING:
    from analysis.figures.papers.base import PaperFigure, Sample, Study
    from testbed.run.sweep import SweepJob
    from testbed.run.sweep_points import SweepPoint

HELP = "reproduce a figure from a paper, with a verdict on every claim"
FIGURES = ("netstorm-tta", "geomx-ladder", "esync", "allreduce-ab", "diloco-util", "hier-k1k2", "sparsity", "dgt",
           "p3-bandwidth", "gaia-wan", "stale", "geo-granularity")  # fmt: skip
COMPARISONS = ("six-way",)  # of our own, made in the same way
SCENARIOS = Path(__file__).parents[2] / "scenarios" / "papers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", choices=(*FIGURES, *COMPARISONS), metavar="NAME",
                        help=", ".join((*FIGURES, *COMPARISONS)))  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="few points and seeds: minutes instead of hours")
    parser.add_argument("--on", choices=BACK_ENDS, default="simulate", help="default: simulate")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: figures/NAME or figures/NAME-quick")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at once; default: cores when simulated, else 1")


def execute(arguments: argparse.Namespace) -> int:
    from analysis.figures.papers import COMPARISONS as OWN
    from analysis.figures.papers import FIGURES as TABLE
    from analysis.figures.papers.produce import produce

    figure = {**TABLE, **OWN}[arguments.name]
    _refuse_missing(arguments.name, figure)
    check_jobs(arguments.jobs)
    out = arguments.out or Path("figures") / (arguments.name + ("-quick" if arguments.quick else ""))
    assert figure.studies is not None
    samples: list[Sample] = []
    left_out: dict[str, str] = {}
    for study in figure.studies(arguments.quick):
        samples += _run_study(study, arguments, out, left_out)
    verdict = produce(arguments.name, figure, samples, left_out, out)
    _tell(verdict, out, arguments.json)
    return 0


def missing(needs: tuple[str, ...]) -> list[str]:
    """Those of ``axis=kind`` that a scenario of this release cannot name."""
    from testbed.codec.options import CODECS
    from testbed.policy.order import ORDERS
    from testbed.policy.overlay import OVERLAYS
    from testbed.policy.shard import SHARDS
    from testbed.policy.sync import SYNC
    from testbed.scenario.paradigms import PARADIGMS
    from testbed.training.options import OPTIMIZERS

    tables: dict[str, Any] = {"paradigm": PARADIGMS, "sync": SYNC, "codec": CODECS, "order": ORDERS,
                              "overlay": OVERLAYS, "shard": SHARDS, "optimizer": OPTIMIZERS}  # fmt: skip
    return [need for need in needs if need.partition("=")[2] not in tables[need.partition("=")[0]]]


def _refuse_missing(name: str, figure: PaperFigure) -> None:
    from testbed.errors import ScenarioError

    lacking = missing(figure.needs)
    if lacking:
        raise ScenarioError(f"figure {name}: this release has no {', '.join(lacking)}, which it is about")
    if figure.studies is None:
        raise ScenarioError(f"figure {name}: its techniques are there, its study is not written yet")


def _run_study(study: Study, arguments: argparse.Namespace, out: Path, left_out: dict[str, str]) -> list[Sample]:
    from testbed.cli.sweep_progress import progress
    from testbed.run import sweep

    labelled = _points(study, study.back_end or arguments.on, left_out)
    job = _job(study, [point for _, point in labelled], out, arguments.jobs)
    if not arguments.json:
        print(f"{study.name}: {len(labelled)} runs, {job.jobs} at once")
    with progress(job, quiet=arguments.json) as shown:
        rows = sweep.execute(job, shown.take)
    _refuse_failed(job, rows)
    return _samples(study, labelled, job)


def _points(study: Study, on: str, left_out: dict[str, str]) -> list[tuple[str, SweepPoint]]:
    from testbed.run.sweep_points import points_of
    from testbed.scenario.sweep import Axis, Sweep

    found = []
    for label, settings in study.variants.items():
        lacking = missing(study.needs.get(label, ()))
        if lacking:
            left_out[label] = f"this release has no {', '.join(lacking)}"
            continue
        fixed = [Axis((path,), ((value,),)) for path, value in settings.items()]
        grid = [Axis((path,), tuple((value,) for value in values)) for path, values in study.grid.items()]
        wanted = Sweep((*fixed, *grid), study.seeds)
        found += [(label, point) for point in points_of(SCENARIOS / study.scenario, wanted, on)]
    return found


def _job(study: Study, points: list[SweepPoint], out: Path, jobs: int | None) -> SweepJob:
    from testbed.run import sweep
    from testbed.scenario.sweep import Sweep

    return sweep.SweepJob(directory=out / study.name, scenario=SCENARIOS / study.scenario, sweep=Sweep(), points=points,
                     jobs=jobs or sweep.default_jobs(points))  # fmt: skip


def _refuse_failed(job: SweepJob, rows: list[dict[str, Any]]) -> None:
    from testbed.errors import RunFailed

    failed = [row for row in rows if row["status"] not in ("done", "degraded")]
    if failed:
        first = failed[0]
        where = job.directory / "runs" / first["run"]
        raise RunFailed(f"{len(failed)} of {len(rows)} runs failed; the first, {where}: {first['message']}")


def _samples(study: Study, labelled: list[tuple[str, SweepPoint]], job: SweepJob) -> list[Sample]:
    from analysis.figures.papers.base import Sample
    from analysis.load import load_run

    return [
        Sample(study.name, label, {path: value for path, value in point.settings.items() if path in study.grid},
               point.seed, load_run(job.path(point)))
        for label, point in labelled
    ]  # fmt: skip


def _tell(verdict: dict[str, Any], out: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"kind": "figure", "directory": str(out), **verdict}))
        return
    from testbed.cli import look

    shown = look.table(f"{verdict['title']} ({verdict['source']})", "verdict", "claim", "measured")
    for each in verdict["assertions"]:
        shown.add_row(each["verdict"], each["claim"], each["measured"] + (f"\n{each['why']}" if each["why"] else ""))
    console = look.console()
    console.print(shown)
    for label, reason in verdict["left_out"].items():
        console.print(f"left out: {label}: {reason}", markup=False)
    told = ", ".join(f"{count} {state}" for state, count in verdict["summary"].items())
    console.print(f"{told}; written to {out}", markup=False, soft_wrap=True)
