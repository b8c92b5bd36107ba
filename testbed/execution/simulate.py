"""Simulation: every node a coroutine in virtual time, over a flow-level network."""

from __future__ import annotations

import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.axes import place_in_code
from testbed.errors import RunFailed, TestbedError
from testbed.execution.recovery import Attempts
from testbed.plan.model import Plan
from testbed.results.progress import Progress

if TYPE_CHECKING:
    from testbed.engine.script.watch import ScriptWatch


def run(plan: Plan, directory: Path, report: Progress) -> None:
    """Run all roles to their end in this process. Raise the error of the first node that failed."""
    report({"kind": "stage", "name": "starting nodes"})
    from testbed.execution.torch_settings import settings_of_a_run

    with settings_of_a_run():
        _run(plan, directory, report)


def _run(plan: Plan, directory: Path, report: Progress) -> None:
    from testbed.execution.devices import placed
    from testbed.execution.scripts import SIMULATION, failure_files, point_to_traceback, watch_of

    plan = placed(plan)
    failures = failure_files(plan, directory)
    watch = watch_of(failures, SIMULATION, own=False)
    try:
        with Attempts(plan, directory, report) as attempts:
            attempts.run(partial(_attempt, plan, directory, report, attempts, watch))
    except TestbedError as error:
        point_to_traceback(error, failures)
        raise
    finally:
        if watch is not None:
            watch.close()
            watch.files.close()


def _attempt(
    plan: Plan, directory: Path, report: Progress, attempts: Attempts, watch: ScriptWatch | None, begin_s: float
) -> None:
    from testbed.engine.roles import make_role
    from testbed.execution.resume import checkpoint_files
    from testbed.simulation.run import SimulationOptions, simulate

    files = checkpoint_files(plan, directory, report)
    if files is not None and files.resumed is not None:
        attempts.clock.resumed(files.resumed.round, files.resumed.instant, files.resumed.members.missing)
    options = SimulationOptions(begin_s=begin_s, due=attempts.clock, on_fault=attempts.on_fault)
    exits = simulate(plan, partial(make_role, files=files, watch=watch), directory, report, options)
    for end in exits.values():
        attempts.now_s = max(attempts.now_s, end.at_s)
    for node, end in exits.items():
        if end.error is None:
            continue
        if not isinstance(end.error, TestbedError) and (place := place_in_code(end.error)):
            traceback.print_exception(end.error)
            raise RunFailed(f"{node}: {place}: {type(end.error).__name__}: {end.error}") from end.error
        raise end.error
