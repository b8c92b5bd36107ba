"""What ``testbed run`` does with a file of several jobs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cli.interrupts import Interrupts
from testbed.cli.options import Outcome
from testbed.display import look
from testbed.errors import ScenarioError
from testbed.results import COMPLETED

if TYPE_CHECKING:
    from testbed.execution.session import HostProcess, SessionResult
    from testbed.plan.jobs import Job
    from testbed.scenario.jobs import ReadJobs

_FOR_ONE = {"resume": "--resume", "view": "--view", "log": "--log", "cluster": "--cluster"}


def run_jobs(
    arguments: argparse.Namespace,
    read: ReadJobs,
    interrupts: Interrupts,
    begin_s: float,
    early: HostProcess | None,
) -> Outcome:
    """Run the jobs of a file on one network, and write a run directory for each."""
    from testbed import launch, launch_jobs
    from testbed.display.progress import Display, choose_for_job
    from testbed.execution import session
    from testbed.results.rundir import AlreadyDone
    from testbed.scenario.shipped import path_of

    _refuse(arguments)
    try:
        text = path_of(arguments.scenario).read_bytes()
        prepared = launch_jobs.prepare(read, out=arguments.out, text=text, again=arguments.again)
    except AlreadyDone as done:
        if not arguments.json:
            print(f"{done}: these jobs have been run already; nothing to do (--again repeats them)")
        return _told(arguments, Path(str(done)), 0)

    def display_of(job: Job) -> Display:
        return choose_for_job(job.plan, job.name, as_json=arguments.json, quiet=arguments.quiet)

    how: dict[str, Any] = {**launch.since(begin_s), "hurry": lambda: interrupts.count > 1}
    with launch_jobs.final_statuses(prepared.runs):
        outcomes = launch_jobs.train(prepared, display_of, partial(session.run_jobs, early=early))
        interrupts.deferred = True
        outcomes = launch_jobs.finish(prepared, outcomes, **how)
    interrupts.deferred = False
    ended = {job.name: outcome for job, outcome in zip(prepared.jobs, outcomes, strict=True)}
    if arguments.alone and not any(outcome.status == "interrupted" for outcome in outcomes):
        alone = launch_jobs.run_alone(prepared, display_of, session.run_jobs, **how)
        ended |= {f"{job.name} alone": outcome for job, outcome in zip(prepared.jobs, alone, strict=True)}
    launch_jobs.write_summary(prepared.directory)
    _tell_failures(ended)
    code = max(outcome.exit_code for outcome in ended.values())
    return _told(arguments, prepared.directory, 143 if code == 130 and interrupts.terminated else code)


def _refuse(arguments: argparse.Namespace) -> None:
    for name, option in _FOR_ONE.items():
        if getattr(arguments, name):
            raise ScenarioError(f"{option}: is for a scenario without 'jobs'; leave it out")


def _tell_failures(ended: dict[str, SessionResult]) -> None:
    with suppress(OSError):  # no one reads it
        for name, outcome in ended.items():
            if outcome.status not in COMPLETED:
                print(f"testbed: {name}: " + outcome.message.replace("\n", "\n         "), file=sys.stderr)


def _told(arguments: argparse.Namespace, directory: Path, code: int) -> Outcome:
    from analysis.jobs import load_jobs
    from testbed.display.jobs import summary_of_jobs

    stored = load_jobs(directory)
    if arguments.json:
        return code, {
            "kind": "result",
            "run": str(directory),
            "exit_code": code,
            "jobs": _results(directory, stored.jobs),
        }
    with suppress(OSError, SystemExit):
        look.console().print(*summary_of_jobs(stored), sep="\n")
        print(f"run directory: {directory} (jobs/NAME has the run of each job)")
    return code


def _results(directory: Path, names: Iterable[str]) -> dict[str, Any]:
    from testbed.results.job_index import folder

    files = {name: folder(directory, name) / "result.json" for name in names}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.is_file()}
