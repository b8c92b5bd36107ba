"""Run a scenario many times with different values and seeds, and write the results as one table.

A run is identified by the content of its Plan and the version of the code, and finished runs are not repeated. To
continue an interrupted sweep, start it again.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cli.options import (
    Outcome,
    add_allow_code,
    add_cluster,
    add_log,
    check_jobs,
    scenario_file,
    seeds,
    whole,
)
from testbed.cli.sweep_progress import progress
from testbed.display import look
from testbed.display.summary import sweep_table
from testbed.facilities import BACK_ENDS
from testbed.numbers import counted
from testbed.results import COMPLETED

if TYPE_CHECKING:
    from testbed.execution.sweep import SweepJob
    from testbed.scenario.sweep import TuningRange

HELP = "run a grid of settings and seeds; resumable, one table at the end"
FAILURES_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "scenario",
        type=scenario_file,
        help="scenario, with or without a section 'sweep'; or a file with 'scenario' and 'sweep' only",
    )
    parser.add_argument("--on", choices=BACK_ENDS, help="back end, instead of the scenario's own")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=V,V",
        dest="grid",
        help="values of one setting, combined with all of the others; may be repeated",
    )
    parser.add_argument(
        "--zip",
        action="append",
        default=[],
        metavar="PATH=V,V",
        dest="zipped",
        help="values combined one to one with those of the other --zip; may be repeated",
    )
    parser.add_argument(
        "--techniques",
        metavar="NAME,…",
        help="presets that replace the techniques of the scenario, one at a time; all: every one that can run on it",
    )
    parser.add_argument(
        "--tune",
        metavar="OPTION=LOW..HIGH",
        help="search the best value of an option of the optimizer for each point before its seeds are run, e.g. "
        "learning_rate=3e-4..1e-1; a technique's own value is tried first",
    )
    parser.add_argument(
        "--trials", type=whole, default=8, metavar="N", help="runs of each search of --tune; default: %(default)s"
    )
    parser.add_argument(
        "--seeds",
        type=seeds,
        metavar="N|S,S",
        help="the scenario's seed and the N-1 after it; or a list, such as 1,2,5",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory of the runs; default: sweeps/NAME")
    parser.add_argument("--jobs", type=whole, metavar="N", help="runs at once; default: cores in virtual time, else 1")
    add_cluster(parser)
    parser.add_argument("--retry-failed", action="store_true", help="run failed points again")
    add_log(parser)
    add_allow_code(parser)
    parser.add_argument("--dry-run", action="store_true", help="list the runs, and stop")


def execute(arguments: argparse.Namespace) -> Outcome:
    from testbed.execution import sweep
    from testbed.scenario.sweep import tuning_range

    range_ = None if arguments.tune is None else tuning_range(arguments.tune, arguments.trials)
    job = _job(arguments)
    if arguments.dry_run:
        return _plan_only(job, range_, arguments.json)
    begin_s = time.monotonic()
    try:
        if range_ is not None:
            job = _tuned(job, range_, arguments)
        with progress(job, quiet=arguments.json) as shown:
            rows = sweep.execute(job, shown.take, shown.warn)
    except KeyboardInterrupt:
        if not arguments.json:
            _tell_what_is_left(job)
        raise
    return _report(job, rows, time.monotonic() - begin_s, arguments.json)


def _tell_what_is_left(job: SweepJob) -> None:
    """Print how many runs are done, according to their directories, and how to go on."""
    from testbed.results.rundir import RunDirectory

    states = [RunDirectory(job.path(point)).status().state for point in job.points]
    done = sum(state in COMPLETED for state in states)
    with suppress(OSError):
        told = f"{done} of {counted(len(states), 'run')} done in {job.directory}"
        print(f"{told}; the same command goes on with the others", file=sys.stderr, flush=True)


def _job(arguments: argparse.Namespace) -> SweepJob:
    from testbed.callbacks import live_logs
    from testbed.execution import sweep
    from testbed.execution.sweep_points import TechniquePoints, points_of, points_of_techniques
    from testbed.scenario.sweep import from_options, joined, read_sweep, technique_names

    scenario, written = read_sweep(arguments.scenario)
    wanted = joined(written, from_options(arguments.grid, arguments.zipped, arguments.seeds))
    if arguments.techniques is None:
        found = TechniquePoints(wanted, points_of(scenario, wanted, arguments.on, arguments.allow_code), {})
    else:
        names = technique_names(arguments.techniques)
        found = points_of_techniques(names, scenario, wanted, arguments.on, arguments.allow_code)
    check_jobs(arguments.jobs)
    followers = live_logs(arguments.log)
    return sweep.SweepJob(
        directory=arguments.out or Path("sweeps") / found.points[0].plan.name,
        scenario=scenario,
        sweep=found.sweep,
        points=found.points,
        jobs=arguments.jobs,
        retry_failed=arguments.retry_failed,
        followers=followers,
        cluster=arguments.cluster,
        left_out=found.left_out,
    )


def _tuned(job: SweepJob, range_: TuningRange, arguments: argparse.Namespace) -> SweepJob:
    from testbed.execution.sweep_points import maker
    from testbed.execution.tuning import tuned

    make = maker(job.scenario, arguments.on, arguments.allow_code)

    def tell(line: str) -> None:
        if not arguments.json:
            print(line, flush=True)

    return tuned(job, range_, make, tell, lambda text: print(f"warning: {text}", file=sys.stderr, flush=True))


def _plan_only(job: SweepJob, range_: TuningRange | None, as_json: bool) -> Outcome:
    from analysis.sweeps.conclusion import left_out
    from testbed.execution.sweep_points import index_of

    if as_json:
        return {"kind": "sweep", "dry_run": True, **index_of(job.points, job.scenario, job.sweep, job.left_out)}
    for point in job.points:
        settings = " ".join(f"{path}={value}" for path, value in point.settings.items())
        print(f"{point.id}  seed {point.seed}  {settings}")
    print(*left_out(job.left_out), sep="\n", end="\n" if job.left_out else "")
    if range_ is not None:
        print(f"before: {counted(range_.trials, 'run')} of each point with the first seed, to find its {range_.path}")
    print(f"{counted(len(job.points), 'run')}, {job.at_once}, in {job.directory}")
    return 0


def _report(job: SweepJob, rows: list[dict[str, Any]], took_s: float, as_json: bool) -> Outcome:
    failed = [row for row in rows if row["status"] not in COMPLETED]
    code = 4 if failed else 0
    if as_json:
        found = {"kind": "sweep", "directory": str(job.directory), "runs": rows, "failed": len(failed)}
        return code, {**found, "left_out": dict(job.left_out)} if job.left_out else found
    with suppress(OSError, SystemExit):  # rich exits at a closed pipe; the exit code is that of the sweep
        _print(job, rows, failed, took_s)
    return code


def _print(job: SweepJob, rows: list[dict[str, Any]], failed: list[dict[str, Any]], took_s: float) -> None:
    shown = failed + [row for row in rows if row["status"] == "diverged"]
    from analysis.sweeps.conclusion import conclusion, left_out, tuning_told
    from analysis.sweeps.points import cases_of, points_of

    console = look.console()
    cases = cases_of(points_of(rows, job.sweep.varied()))
    console.print(sweep_table(cases))
    targets = {point.plan.training.target for point in job.points}
    if len(cases[0].points) > 1 and len(targets) == 1:
        console.print(*conclusion(cases, targets.pop(), job.tuning is not None), sep="\n")
    for line in [*(tuning_told(job.tuning) if job.tuning else ()), *left_out(job.left_out)]:
        console.print(line, soft_wrap=True)
    for row in shown[:FAILURES_SHOWN]:
        first_line = (row["message"].splitlines() or ["no message"])[0]
        console.print(f"{row['status']}: {job.directory / 'runs' / row['run']}: {first_line}", soft_wrap=True)
    if len(shown) > FAILURES_SHOWN:
        console.print(f"… and {len(shown) - FAILURES_SHOWN} more; see sweep.csv")
    done = sum(row["status"] in COMPLETED for row in rows)
    cure = "; --retry-failed runs the failed ones again" if any(row["status"] == "failed" for row in failed) else ""
    console.print(f"{done} of {counted(len(rows), 'run')} done in {took_s:.1f} s: {job.directory / 'sweep.csv'}{cure}")
    if done:
        console.print(f"`testbed compare {job.directory}` draws them, `testbed report {job.directory}` makes a page")
