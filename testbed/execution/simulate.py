"""Simulation: every node is a coroutine in virtual time, over a simulated network."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from testbed.axes import place_in_code
from testbed.errors import RunFailed, TestbedError
from testbed.execution.deployment import Deployment, Ground
from testbed.execution.recovery import Attempts

if TYPE_CHECKING:
    from testbed.engine.script.watch import ScriptWatch
    from testbed.results.failures import FailureFiles
    from testbed.simulation.run import Exits, JobRun


def run_jobs(ground: Ground) -> list[BaseException | None]:
    """Run all roles of all jobs to their end in this process. Return each job's error: of its first failed node."""
    ground.report_start()
    from testbed.execution.devices import placed_together
    from testbed.execution.torch_settings import settings_of_a_run

    plans = placed_together([each.job for each in ground.deployments])
    deployments = [each.with_plan(plan) for each, plan in zip(ground.deployments, plans, strict=True)]
    with settings_of_a_run(), ExitStack() as stack:
        prepared = [stack.enter_context(_prepared(each)) for each in deployments]
        if len(prepared) == 1:
            return [_with_restarts(ground, prepared[0])]
        return [_pointed(each, error) for each, error in zip(prepared, _attempt(ground, prepared, 0.0), strict=True)]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A job with the objects that its attempts need. ``watch`` is None without scripts."""

    deployment: Deployment
    attempts: Attempts
    failures: FailureFiles | None
    watch: ScriptWatch | None


@contextmanager
def _prepared(deployment: Deployment) -> Iterator[_Prepared]:
    from testbed.execution.scripts import SIMULATION, failure_files, watch_of

    plan = deployment.plan
    failures = failure_files(plan, deployment.directory)
    watch = watch_of(failures, SIMULATION, own=False)
    try:
        with Attempts(plan, deployment.directory, deployment.report) as attempts:
            yield _Prepared(deployment, attempts, failures, watch)
    finally:
        if watch is not None:
            watch.close()
            watch.files.close()


def _with_restarts(ground: Ground, prepared: _Prepared) -> BaseException | None:
    """Run the only job, with the restarts of its Plan. Several jobs cannot restart, as they share the network."""

    def once(begin_s: float) -> None:
        (error,) = _attempt(ground, [prepared], begin_s)
        if error is not None:
            raise error

    try:
        prepared.attempts.run(once)
    except Exception as error:
        return _pointed(prepared, error)
    return None


def _pointed(prepared: _Prepared, error: BaseException | None) -> BaseException | None:
    """Return the error, with the name of the file with the traceback if a script has failed."""
    from testbed.execution.scripts import point_to_traceback

    if isinstance(error, TestbedError):
        point_to_traceback(error, prepared.failures)
    return error


def _attempt(ground: Ground, prepared: Sequence[_Prepared], begin_s: float) -> list[BaseException | None]:
    from testbed.simulation.run import simulate_jobs

    runs = [_job_run(each, begin_s) for each in prepared]
    every = simulate_jobs(runs, ground.network, ground.cores)
    for each, exits in zip(prepared, every, strict=True):
        for end in exits.values():
            each.attempts.now_s = max(each.attempts.now_s, end.at_s)
    return [_error_of(exits) for exits in every]


def _job_run(prepared: _Prepared, begin_s: float) -> JobRun:
    from testbed.engine.roles import make_role
    from testbed.execution.resume import checkpoint_files
    from testbed.simulation.run import JobRun, SimulationOptions

    deployment = prepared.deployment
    attempts = prepared.attempts
    files = checkpoint_files(deployment.plan, deployment.directory, deployment.report)
    if files is not None and files.resumed is not None:
        attempts.clock.resumed(files.resumed.round, files.resumed.instant, files.resumed.members.missing)
    return JobRun(
        job=deployment.job,
        make_role=partial(make_role, files=files, watch=prepared.watch),
        directory=deployment.directory,
        on_progress=deployment.report,
        options=SimulationOptions(begin_s=begin_s, due=attempts.clock, on_fault=attempts.on_fault),
    )


def _error_of(exits: Exits) -> BaseException | None:
    """Return the error of the first node that failed. An error of a user's code names its place in that code."""
    for node, end in exits.items():
        if end.error is None:
            continue
        place = "" if isinstance(end.error, TestbedError) else place_in_code(end.error)
        if place or isinstance(end.error, SystemExit):
            traceback.print_exception(end.error)
            error = RunFailed(": ".join(filter(None, [node, place, type(end.error).__name__, str(end.error)])))
            error.__cause__ = end.error
            return error
        return end.error
    return None
