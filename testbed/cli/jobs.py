"""The part of ``testbed run`` for a file with several jobs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cli.interrupts import Interrupts
from testbed.cli.options import Outcome
from testbed.display import look
from testbed.errors import ScenarioError
from testbed.results import COMPLETED

if TYPE_CHECKING:
    from testbed.execution.deployment import Ground
    from testbed.execution.session import HostProcess, SessionResult
    from testbed.launch_jobs import PreparedJobs
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
    from testbed.shipped import path_of

    _refuse(arguments)
    text = path_of(arguments.scenario).read_bytes()
    prepared = launch_jobs.prepare(read, out=arguments.out, text=text, again=arguments.again)
    how: dict[str, Any] = {**launch.since(begin_s), "hurry": lambda: interrupts.count > 1}

    def carry_out(begun: PreparedJobs, name: str, host: HostProcess | None = None) -> list[SessionResult]:
        def display_of(job: Job) -> Display:
            return choose_for_job(job.plan, name or job.name, as_json=arguments.json, quiet=arguments.quiet)

        def execute(ground: Ground) -> list[SessionResult]:
            interrupts.admit()
            return session.run_jobs(ground, early=host)

        with launch_jobs.final_statuses(begun.runs):
            outcomes = launch_jobs.train(begun, display_of, execute)
            interrupts.deferred = True  # until the next run begins
            return launch_jobs.finish(begun, outcomes, **how)

    ended: dict[str, SessionResult] = {}
    if prepared.are_done:
        _tell_done(arguments, prepared)
    else:
        outcomes = carry_out(prepared, "", early)
        ended = {job.name: outcome for job, outcome in zip(prepared.jobs, outcomes, strict=True)}
    if arguments.alone and not any(outcome.status == "interrupted" for outcome in ended.values()):
        ended |= launch_jobs.run_alone(prepared, carry_out, lambda: interrupts.count > 0)
    if ended:
        launch_jobs.write_summary(prepared.directory)
    interrupts.deferred = False
    _tell_failures(ended)
    code = max((outcome.exit_code for outcome in ended.values()), default=0)
    return _told(arguments, prepared.directory, 143 if code == 130 and interrupts.terminated else code)


def _tell_done(arguments: argparse.Namespace, prepared: PreparedJobs) -> None:
    from testbed.launch_jobs import not_run_alone

    missing = [f"{job.name} alone" for job in not_run_alone(prepared)] if arguments.alone else []
    rest = f"what is missing is run: {', '.join(missing)}" if missing else "nothing to do"
    if not arguments.json:
        print(f"{prepared.directory}: these jobs have been run already; {rest} (--again repeats them)")


def _refuse(arguments: argparse.Namespace) -> None:
    for name, option in _FOR_ONE.items():
        if getattr(arguments, name):
            raise ScenarioError(f"{option}: is for a scenario without 'jobs'; leave it out")


def _tell_failures(ended: dict[str, SessionResult]) -> None:
    with suppress(OSError):  # nobody reads the output
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
