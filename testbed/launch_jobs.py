"""A run with several jobs on one network, from their scenarios to finished run directories; see ``testbed.launch``."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed import launch
from testbed.display.progress import Display
from testbed.errors import ScenarioError
from testbed.execution import capacity, session
from testbed.execution.deployment import Deployment, Ground, write_jobs
from testbed.execution.record import final_status
from testbed.execution.scripts import is_scripted
from testbed.execution.session import SessionResult
from testbed.plan.build import build_jobs
from testbed.plan.jobs import Job, SharedNetwork
from testbed.plan.sharing import sharing
from testbed.results import COMPLETED, atomic, owner
from testbed.results.job_index import folder, has_jobs, names_of_jobs
from testbed.results.rundir import AlreadyDone, RunDirectory, new_path, open_run
from testbed.scenario.jobs import ReadJobs

if TYPE_CHECKING:
    from analysis.jobs import StoredJobs

ALONE = "alone"  # below a run's directory: each job by itself
ExecuteJobs = Callable[[Ground], Sequence[SessionResult]]
MakeDisplay = Callable[[Job], Display]


@dataclass(frozen=True)
class PreparedJobs:
    """Jobs that can be executed. ``directory``: of the run; each job has one of its own in it."""

    read: ReadJobs
    jobs: tuple[Job, ...]
    shared: SharedNetwork
    directory: Path
    runs: tuple[RunDirectory, ...]


def planned(read: ReadJobs) -> tuple[tuple[Job, ...], SharedNetwork]:
    """Return the jobs with their Plans. Raise ``ScenarioError`` for what a run would refuse before its first step."""
    jobs, shared = build_jobs(read)
    for job, each in zip(jobs, read.jobs, strict=True):
        launch.check_before_training(each.scenario, job.plan)
    return jobs, shared


def prepare(read: ReadJobs, *, out: Path | None, text: bytes, again: bool = False) -> PreparedJobs:
    """Claim the directories of a run and of its jobs, and write what is known before it. Arguments and errors are those
    of ``launch.prepare``."""
    jobs, shared = planned(read)
    directory = out or new_path(read.name, datetime.now(), secrets.token_hex(2))
    _refuse_if_taken(directory, jobs, again)
    runs = _prepare(read, jobs, {job.name: folder(directory, job.name) for job in jobs}, again)
    write_jobs(directory, read.name, jobs, shared)
    atomic.write_bytes(directory / "scenario.yaml", text)
    return PreparedJobs(read, jobs, shared, directory, runs)


def _prepare(read: ReadJobs, jobs: Sequence[Job], places: Mapping[str, Path], again: bool) -> tuple[RunDirectory, ...]:
    scenarios = {each.name: each.scenario for each in read.jobs}
    return tuple(
        launch.prepare(scenarios[job.name], job.plan, out=places[job.name], again=again or places[job.name].exists())
        for job in jobs
    )


def _refuse_if_taken(directory: Path, jobs: Sequence[Job], again: bool) -> None:
    """Raise ``AlreadyDone`` for a finished run, and ``ScenarioError`` for a directory of something else."""
    if not directory.exists() or not any(directory.iterdir()) or again:
        return
    if not has_jobs(directory):
        raise ScenarioError(f"{directory}: is not empty and not that of a run with jobs; give another --out")
    names = names_of_jobs(directory)
    done = [open_run(folder(directory, name)).status().state in COMPLETED for name in names]
    if names == [job.name for job in jobs] and all(done):
        raise AlreadyDone(str(directory))
    raise ScenarioError(f"{directory}: holds the run of other jobs, or one that did not end; --again replaces it")


def execution_of(jobs: Sequence[Job]) -> ExecuteJobs:
    """Return what executes jobs for a program: simulated ones in this process, unless a user's script is among them."""
    here = not any(job.plan.facilities.has_processes or is_scripted(job.plan) for job in jobs)
    return _in_this_process if here else session.run_jobs


def _in_this_process(ground: Ground) -> Sequence[SessionResult]:
    from testbed.execution import host

    return host.attempt_jobs(ground)


def train(prepared: PreparedJobs, display_of: MakeDisplay, execute: ExecuteJobs) -> list[SessionResult]:
    """Execute all jobs and show their progress. Errors and interrupts become outcomes: results are always written."""
    return _train(prepared.jobs, prepared.runs, prepared.shared, prepared.directory, display_of, execute)


def _train(
    jobs: Sequence[Job],
    runs: Sequence[RunDirectory],
    shared: SharedNetwork,
    directory: Path,
    display_of: MakeDisplay,
    execute: ExecuteJobs,
) -> list[SessionResult]:
    audiences = [launch.Audience(job.plan, run, display_of(job)) for job, run in zip(jobs, runs, strict=True)]
    deployments = tuple(
        Deployment(job, run.path, audience.take) for job, run, audience in zip(jobs, runs, audiences, strict=True)
    )

    def execute_all() -> Sequence[SessionResult]:
        for message in capacity.warnings_together([job.plan for job in jobs]):
            for audience in audiences:
                audience.take({"kind": "warning", "message": message})
        return execute(Ground(deployments, shared.network, directory))

    return launch.train_before(audiences, execute_all)


def finish(prepared: PreparedJobs, outcomes: Sequence[SessionResult], **how: Any) -> list[SessionResult]:
    """Write the results of every job, as ``launch.finish`` does, with its arguments. Return the outcomes."""
    return _finish(prepared.jobs, prepared.runs, outcomes, **how)


def _finish(
    jobs: Sequence[Job], runs: Sequence[RunDirectory], outcomes: Sequence[SessionResult], **how: Any
) -> list[SessionResult]:
    return [
        launch.finish(run, job.plan, outcome, **how)[0] for job, run, outcome in zip(jobs, runs, outcomes, strict=True)
    ]


def run_alone(prepared: PreparedJobs, display_of: MakeDisplay, execute: ExecuteJobs, **how: Any) -> list[SessionResult]:
    """Run each job by itself on the same network, from the run's beginning, into ``alone/NAME``."""
    found = []
    for job in prepared.jobs:
        jobs = sharing([Job(plan=job.plan)], prepared.shared)
        place = prepared.directory / ALONE / job.name
        runs = _prepare(prepared.read, [Job(plan=jobs[0].plan, name=job.name)], {job.name: place}, again=True)
        with final_status(runs[0]):
            outcomes = _train(jobs, runs, prepared.shared, place, display_of, execute)
            found += _finish(jobs, runs, outcomes, **how)
    return found


def write_summary(directory: Path) -> StoredJobs:
    """Write the summary of all jobs, and draw them, if any has completed a round. Return them."""
    from analysis.figures.jobs import draw
    from analysis.jobs import load_jobs
    from testbed.display.jobs import summary_of_jobs
    from testbed.display.summary import as_text

    stored = load_jobs(directory)
    atomic.write_text(directory / "summary.txt", as_text(summary_of_jobs(stored)))
    if any(run.result is not None and run.result["rounds"] for run in stored.jobs.values()):
        with atomic.replacing(directory / "figure.png") as temporary:
            draw(stored).savefig(temporary, format="png")
    owner.give_all(directory)
    return stored


def final_statuses(runs: Sequence[RunDirectory]) -> ExitStack:
    """Return a context that gives every run a final status if its block ends by an error; see ``final_status``."""
    stack = ExitStack()
    for run in runs:
        stack.enter_context(final_status(run))
    return stack
