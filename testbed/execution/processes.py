"""The nodes of a run as processes, attempt by attempt: what ``local`` and ``emulate`` have in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError
from testbed.execution.recovery import Attempts
from testbed.plan.model import NodePlan, Plan
from testbed.results.progress import Progress

if TYPE_CHECKING:
    from testbed.realtime.fleet import Fleet

Enter = Callable[[NodePlan], None]


def timed(report: Progress, epoch_ns: int) -> Progress:
    """Return a ``report`` that gives events without a time the present one, on the run's clock."""

    def with_time(event: dict[str, Any]) -> None:
        report({"t": (time.monotonic_ns() - epoch_ns) / 1e9, **event})

    return with_time


def run_nodes(plan: Plan, directory: Path, report: Progress, epoch_ns: int, enter: Enter | None = None) -> None:
    """Run all nodes to their end, and again where the plan says so. Raise the first cause if that does not help.

    Args:
        plan: The run.
        directory: Its run directory.
        report: Gets the nodes' lines of progress.
        epoch_ns: The run's start on CLOCK_MONOTONIC.
        enter: Enters a node's network namespace, in the node's own process; without it, nodes meet on loopback.
    """
    from testbed.execution.resume import checkpoint_files
    from testbed.execution.roles import role_maker
    from testbed.execution.scripts import failure_files
    from testbed.realtime.cores import exact_loop
    from testbed.realtime.fleet import Fleet, Launch

    failures = failure_files(plan, directory)

    def fleet(attempts: Attempts) -> Fleet:
        files = checkpoint_files(plan, directory, report)
        if files is not None and files.resumed is not None:
            members = files.resumed.members
            attempts.clock.goes_on(files.resumed.round, members.trained_s, members.missing)
        launch = Launch(
            make_role=role_maker(plan, files, failures), event_directory=directory / "events", enter=enter,
            epoch_ns=epoch_ns, due=attempts.clock, absent=attempts.clock.absent, on_fault=attempts.on_fault,
            failures=failures,
            new_loop=exact_loop if plan.exact is not None else None,
        )  # fmt: skip
        return Fleet(plan, launch)

    attempt_until_done(plan, directory, report, epoch_ns, fleet)


def attempt_until_done(
    plan: Plan, directory: Path, report: Progress, epoch_ns: int, make_fleet: Callable[[Attempts], Fleet],
    wait_s: Callable[[float], object] = time.sleep,
) -> None:  # fmt: skip
    """Run the nodes to their end, by a new fleet for each attempt. Raise the first cause of the last one."""
    from testbed.execution.scripts import failure_files, point_to_traceback

    def now_s() -> float:
        return (time.monotonic_ns() - epoch_ns) / 1e9

    failures = failure_files(plan, directory)
    with Attempts(plan, directory, report) as attempts:

        def attempt(begin_s: float) -> None:
            wait_s(max(0.0, begin_s - now_s()))
            try:
                make_fleet(attempts).run(report)
            except TestbedError as error:
                point_to_traceback(error, failures)
                raise
            finally:
                attempts.now_s = now_s()
                if failures is not None:
                    failures.close()

        attempts.run(attempt)
