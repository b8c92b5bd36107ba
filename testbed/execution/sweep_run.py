"""Runs one point of a sweep in its own process, forked from one that has imported everything."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError
from testbed.execution import session
from testbed.execution.compiler import bring_compiler, leave_out_compiler, may_compile
from testbed.execution.record import add_capabilities, conclude, final_status, known_before, prepare
from testbed.execution.scripts import SIMULATION, failure_files
from testbed.execution.session import Event, Follower, SessionResult
from testbed.plan.model import Plan, to_json
from testbed.processes.child import Child, fork
from testbed.results import atomic
from testbed.results.manifest import git_state, use_git_state
from testbed.results.oom_kills import OomKills
from testbed.results.rundir import RunDirectory, read_json

_MANY_SIMULATIONS = 4  # from this number on, loading the compiled networks pays even for short simulations
_INTERRUPTS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})  # signals for which a command has handlers

Followers = Callable[[], Sequence[Follower]]


@dataclass(frozen=True, slots=True)
class PointOrigin:
    """The command, on another machine, that a point comes from and that will read its results.

    plan   the Plan with paths on that machine
    argv   arguments of the command
    git    the commit of its code
    paths  paths of files on that machine, by the path of the copy on this one
    """

    plan: Plan
    argv: Sequence[str]
    git: Mapping[str, Any]
    paths: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PointRun:
    """What a process needs to run a point.

    scenario, resolved  the scenario as written, and with its defaults
    followers           makes the followers of the run, in its process; their warnings go to its ``host.log``
    capabilities        the manifest's description of the machine that runs it
    origin              where the point comes from, if it comes from another machine
    """

    plan: Plan
    scenario: bytes
    resolved: str
    followers: Followers = tuple
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    origin: PointOrigin | None = None


def execute_point(path: Path, point: PointRun, *, in_this_process: bool = True) -> None:
    """Run a point in the run directory ``path``. Raises the errors of ``rundir.claim``.

    in_this_process  whether a simulation runs in the calling process, which then prints into the run's log; otherwise
                     it gets its own host process, as all other runs do
    """
    begin_s = time.monotonic()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    if point.origin:
        sys.argv = list(point.origin.argv)
        use_git_state(point.origin.git)
    run = prepare(path, point.plan, scenario=point.scenario, resolved=point.resolved, capabilities=point.capabilities)
    with final_status(run):
        if in_this_process:
            log = os.open(run.file("host.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
        _execute(run, point, begin_s, started, in_this_process)


def _execute(run: RunDirectory, point: PointRun, begin_s: float, started: str, in_this_process: bool) -> None:
    followers = point.followers()
    plan = point.plan
    outcome = _attempt(point.plan, run, followers, in_this_process)
    if point.origin:
        plan, outcome = point.origin.plan, _as_sent(run, outcome, point.origin)
    ended = conclude(run, plan, outcome, started, time.monotonic() - begin_s, point.plan)
    run.set_status(ended.outcome.status, ended.result["plan_sha256"], ended.outcome.message)
    for follower in followers:
        follower.end(run.path)


def _as_sent(run: RunDirectory, outcome: SessionResult, origin: PointOrigin) -> SessionResult:
    """Replace paths of copies by those of the origin, in the run directory and in the outcome; return the outcome."""
    atomic.write_bytes(run.file("plan.json"), to_json(origin.plan))
    about = read_json(run.file("manifest.json"))
    atomic.write_json(run.file("manifest.json"), {**about, "code": [asdict(file) for file in origin.plan.code]})
    return replace(outcome, message=with_paths(outcome.message, origin.paths))


def with_paths(text: str, paths: Mapping[str, str]) -> str:
    """Return the text with the values of ``paths`` instead of their keys."""
    for copy, path in paths.items():
        text = text.replace(copy, path)
    return text


def close_script(run: RunDirectory, plan: Plan, code: int) -> None:
    """If the run's script has ended the process, set the run's status to failed with that cause."""
    files = failure_files(plan, run.path)
    node, cause = files.explain(SIMULATION, code, OomKills(None, None)) if files else ("", "")
    if files and node:
        files.close()
        run.set_status("failed", run.status().plan_sha256, f"{node}: {cause}\n{files.note(node)}")


def _attempt(plan: Plan, run: RunDirectory, followers: Sequence[Follower], in_this_process: bool) -> SessionResult:
    def take(event: Event) -> None:
        add_capabilities(run, event)
        for follower in followers:
            for message in follower.take(event):
                with run.file("host.log").open("a", encoding="utf-8") as log:
                    log.write(f"warning: {message}\n")

    try:
        add_capabilities(run, {"kind": "capabilities", **known_before(plan)})
        for follower in followers:
            follower.start(plan, run.path)
    except TestbedError as error:
        return SessionResult("failed", str(error), error.exit_code)
    if not plan.facilities.has_processes and in_this_process:
        from testbed.execution.host import attempt

        return attempt(plan, run.path, take)
    return session.run(plan, run.path, take)


def warm_up(plans: Iterable[Plan]) -> None:
    """Import what every child needs, read the data sets and ask git for the commit, before the first fork.

    If there are many simulations, also load the compiled networks. Otherwise each child would load them for itself, or
    go without them and take longer, because it is too short for loading them to pay.
    """
    import pandas  # noqa: F401
    import pyarrow.dataset  # noqa: F401

    import testbed.engine.roles
    import testbed.execution.devices
    import testbed.execution.host
    import testbed.results.divergence
    import testbed.results.fidelity
    import testbed.results.tables
    import testbed.simulation.run  # noqa: F401
    from testbed.engine.learner import warm_up as read_data
    from testbed.execution.torch_settings import settings_of_a_run

    git_state()
    plans = list(plans)
    (bring_compiler if any(map(may_compile, plans)) else leave_out_compiler)()
    if sum(not plan.facilities.has_processes for plan in plans) >= _MANY_SIMULATIONS:
        from testbed.simulation.precompile import load_kept

        load_kept()
    with settings_of_a_run():
        for plan in {repr(plan.training.data): plan for plan in plans}.values():
            read_data(plan)


def fork_point(body: Callable[[], int]) -> Child:
    """Return a forked child that runs ``body``, which returns the exit code. It bypasses this process' display."""

    def begin(_: int) -> int:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
        _write_directly()
        return body()

    return fork(begin, hold=_INTERRUPTS)


def _write_directly() -> None:
    """In a forked child, replace stdout and stderr: a thread of the parent may have held the locks of its display."""
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        setattr(sys, name, open(descriptor, "w", buffering=1, errors="replace", closefd=False))
