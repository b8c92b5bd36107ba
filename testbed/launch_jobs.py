"""A run with several jobs on one network, from their scenarios to finished run directories; see ``testbed.launch``."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed import launch
from testbed.display.progress import Display
from testbed.errors import ScenarioError
from testbed.execution import capacity, record, session
from testbed.execution.deployment import Deployment, Ground, write_jobs
from testbed.execution.record import final_status
from testbed.execution.scripts import is_scripted
from testbed.execution.session import INTERRUPTED, SessionResult
from testbed.plan.build import build_jobs
from testbed.plan.jobs import Job, SharedNetwork
from testbed.plan.model import Plan
from testbed.plan.sharing import sharing
from testbed.results import COMPLETED, atomic, owner
from testbed.results.job_index import JOBS, folder, has_jobs, names_of_jobs
from testbed.results.rundir import RunDirectory, new_path
from testbed.scenario.jobs import ReadJobs

if TYPE_CHECKING:
    from analysis.jobs import StoredJobs

ALONE = "alone"  # below a run's directory: each job by itself
NOT_BEGUN = SessionResult("interrupted", "not run: the command was interrupted; without --again, it goes on here", 130)
ExecuteJobs = Callable[[Ground], Sequence[SessionResult]]
MakeDisplay = Callable[[Job], Display]


@dataclass(frozen=True)
class PreparedJobs:
    """Jobs that can be executed, or have been.

    directory  directory of the run, with a directory for each job
    are_done   whether the directory holds the finished runs of these jobs
    """

    read: ReadJobs
    jobs: tuple[Job, ...]
    shared: SharedNetwork
    directory: Path
    runs: tuple[RunDirectory, ...]
    are_done: bool = False


CarryOut = Callable[[PreparedJobs, str], Sequence[SessionResult]]  # with the name that its progress is shown under


def planned(read: ReadJobs) -> tuple[tuple[Job, ...], SharedNetwork]:
    """Return the jobs with their Plans. Raise ``ScenarioError`` if a run would refuse a job before its first step."""
    jobs, shared = build_jobs(read)
    for job, each in zip(jobs, read.jobs, strict=True):
        launch.check_before_training(each.scenario, job.plan)
    return jobs, shared


def prepare(read: ReadJobs, *, out: Path | None, text: bytes, again: bool = False) -> PreparedJobs:
    """Claim the directories of a run and of its jobs, and write the files known before it, unless the jobs are done.

    Arguments and errors are those of ``launch.prepare``, except that ``are_done`` replaces the error ``AlreadyDone``.
    """
    jobs, shared = planned(read)
    directory = out or new_path(read.name, datetime.now(), secrets.token_hex(2))
    places = {job.name: folder(directory, job.name) for job in jobs}
    if _are_done(directory, jobs, again):
        runs = tuple(RunDirectory(place) for place in places.values())
        return PreparedJobs(read, jobs, shared, directory, runs, are_done=True)
    runs = _prepare(read, jobs, places, again)
    if (directory / ALONE).exists():  # these runs belong to the run that is replaced
        shutil.rmtree(directory / ALONE)
    write_jobs(directory, read.name, jobs, shared)
    atomic.write_bytes(directory / "scenario.yaml", text)
    return PreparedJobs(read, jobs, shared, directory, runs)


def _prepare(read: ReadJobs, jobs: Sequence[Job], places: Mapping[str, Path], again: bool) -> tuple[RunDirectory, ...]:
    scenarios = {each.name: each.scenario for each in read.jobs}
    return tuple(
        launch.prepare(scenarios[job.name], job.plan, out=places[job.name], again=again or places[job.name].exists())
        for job in jobs
    )


def _are_done(directory: Path, jobs: Sequence[Job], again: bool) -> bool:
    """Return whether a directory has the finished runs of these jobs. Raise ``ScenarioError`` if it has others."""
    held = {path.name for path in directory.iterdir()} if directory.exists() else set()
    if not has_jobs(directory) and held - {JOBS}:
        raise ScenarioError(f"{directory}: is not empty, and holds no run with jobs; give another --out")
    if again or not has_jobs(directory):
        return False
    places = {job.name: folder(directory, job.name) for job in jobs}
    if names_of_jobs(directory) == list(places) and all(_is_done(places[job.name], job.plan) for job in jobs):
        return True
    raise ScenarioError(f"{directory}: holds the run of other jobs, or one that did not end; --again replaces it")


def _is_done(place: Path, plan: Plan) -> bool:
    """Return whether a directory has the finished run of this Plan."""
    status = RunDirectory(place).status()
    return status.state in COMPLETED and status.plan_sha256 == record.sha256_of_plan(plan)


def execution_of(jobs: Sequence[Job]) -> ExecuteJobs:
    """Return the function that executes jobs: simulated jobs in this process, unless one of them is a user's script."""
    here = not any(job.plan.facilities.has_processes or is_scripted(job.plan) for job in jobs)
    return _in_this_process if here else session.run_jobs


def _in_this_process(ground: Ground) -> Sequence[SessionResult]:
    from testbed.execution import host

    return host.attempt_jobs(ground)


def train(prepared: PreparedJobs, display_of: MakeDisplay, execute: ExecuteJobs) -> list[SessionResult]:
    """Execute all jobs and show their progress. Errors and interrupts become outcomes: results are always written."""
    audiences = []
    deployments = []
    for job, run in zip(prepared.jobs, prepared.runs, strict=True):
        audience = launch.Audience(job.plan, run, display_of(job))
        audiences.append(audience)
        deployments.append(Deployment(job, run.path, audience.take))

    def execute_all() -> Sequence[SessionResult]:
        for message in capacity.warnings_together([job.plan for job in prepared.jobs]):
            for audience in audiences:
                audience.take({"kind": "warning", "message": message})
        return execute(Ground(tuple(deployments), prepared.shared.network, prepared.directory))

    return launch.train_before(audiences, execute_all)


def finish(prepared: PreparedJobs, outcomes: Sequence[SessionResult], **how: Any) -> list[SessionResult]:
    """Write the results of every job, as ``launch.finish`` does, with its arguments. Return the outcomes."""
    return [
        launch.finish(run, job.plan, outcome, **how)[0]
        for job, run, outcome in zip(prepared.jobs, prepared.runs, outcomes, strict=True)
    ]


def run_alone(
    prepared: PreparedJobs, carry_out: CarryOut, is_interrupted: Callable[[], bool] = lambda: False
) -> dict[str, SessionResult]:
    """Run each job by itself on the same network, from the run's beginning, into ``alone/NAME``, unless this was done.

    Return the outcomes by ``NAME alone``. No further job begins after an interrupt, whether ``carry_out`` returns it or
    ``is_interrupted`` reports it.
    """
    found: dict[str, SessionResult] = {}
    missing = not_run_alone(prepared)
    for job in missing:
        name = f"{job.name} alone"
        if is_interrupted() or any(outcome.status == INTERRUPTED.status for outcome in found.values()):
            found[name] = NOT_BEGUN
        else:
            (found[name],) = carry_out(_by_itself(prepared, job), name)
    return found


def not_run_alone(prepared: PreparedJobs) -> list[Job]:
    """Return the jobs that have no finished run alone."""
    return [
        job
        for job in prepared.jobs
        if not _is_done(prepared.directory / ALONE / job.name, _alone_on(prepared, job).plan)
    ]


def _alone_on(prepared: PreparedJobs, job: Job) -> Job:
    (alone,) = sharing([Job(plan=job.plan)], prepared.shared)
    return alone


def _by_itself(prepared: PreparedJobs, job: Job) -> PreparedJobs:
    """Claim the directory of a job's run by itself."""
    alone = _alone_on(prepared, job)
    place = prepared.directory / ALONE / job.name
    runs = _prepare(prepared.read, [Job(plan=alone.plan, name=job.name)], {job.name: place}, again=True)
    return PreparedJobs(prepared.read, (alone,), prepared.shared, place, runs)


def write_summary(directory: Path) -> StoredJobs:
    """Write the summary of all jobs, and their figure if any job has completed a round. Return the jobs."""
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
