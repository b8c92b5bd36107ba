"""One run from a validated scenario to a finished run directory: the parts of ``testbed run`` and ``testbed.run``."""

from __future__ import annotations

import importlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testbed.display.progress import Display, Logged
from testbed.errors import CapabilityError, ScenarioError, TestbedError, of_os
from testbed.execution import capacity, devices, record, session
from testbed.execution.session import INTERRUPTED, Follower, SessionResult
from testbed.plan.model import Plan
from testbed.results import COMPLETED, atomic
from testbed.results.progress import Progress
from testbed.results.rundir import RunDirectory, new_path

if TYPE_CHECKING:
    from analysis.load import StoredRun
    from testbed.scenario import Scenario

_OF_FINISHING = (
    "testbed.results.tables",
    "pandas",
    "analysis.figures.run",
    "matplotlib.backends.backend_agg",
    "testbed.display.summary",
    "rich.table",
)  # modules that take a second to import
Execute = Callable[[Plan, Path, Progress], SessionResult]


def check_before_training(scenario: Scenario, plan: Plan) -> None:
    """Raise ``ScenarioError``, with its place, if the run would refuse data, split or model before its first step.

    Raise ``CapabilityError`` for a program that is not installed. Runs on a cluster are not checked, as its nodes may
    have other files and programs.
    """
    from testbed.engine.rehearsal import needs_rehearsal, rehearse

    if plan.program is not None and not plan.is_spread:
        from testbed.execution.programs.launch import require_programs

        require_programs(plan.program)
    if plan.is_spread or not needs_rehearsal(plan):
        return
    try:
        rehearse(plan)
    except ScenarioError as error:
        raise scenario.placed(error) from error


def prepare(
    scenario: Scenario,
    plan: Plan,
    *,
    out: Path | None = None,
    text: bytes | None = None,
    again: bool = False,
    early: session.HostProcess | None = None,
) -> RunDirectory:
    """Claim a run directory, and write the files that are known before the run.

    out    the directory, by default a new one below ``runs``
    text   the scenario as its author wrote it
    early  see ``in_processes``

    Raise ``CapabilityError`` if the machine cannot run the Plan, ``AlreadyDone`` if ``out`` holds the finished run of
    this Plan, and ``ScenarioError`` if it holds another one.
    """
    if not plan.is_spread:  # nodes of a cluster look for their GPUs when they start
        try:
            devices.require(plan)
        except CapabilityError as error:
            raise CapabilityError(f"{scenario.place_of('device', 'kind')}: {error}") from error
    resolved = scenario.to_yaml()
    return record.prepare(
        out or new_path(plan.name, datetime.now(), secrets.token_hex(2)),
        plan,
        scenario=resolved.encode() if text is None else text,
        resolved=resolved,
        capabilities=_capabilities(plan, early),
        again=again,
    )


def _capabilities(plan: Plan, early: session.HostProcess | None) -> dict[str, Any]:
    known = record.known_before(plan)
    if not plan.is_emulated:
        return known
    from emulation.probe import probe

    found = early.probing.result() if early is not None and early.probing is not None else probe()
    try:
        return {"delay_method": found.delay_method(), **found.to_dict(), **known}
    except CapabilityError as error:
        raise CapabilityError(f"{error}\nuntil then: --on simulate (virtual time), or --on local (no WAN)") from error


def in_processes(
    plan: Plan, directory: Path, on_progress: Progress, early: session.HostProcess | None = None
) -> SessionResult:
    """Execute the Plan in a host process, which may start others: in ``early``, if it was started before."""
    if not plan.facilities.has_processes:  # a simulation needs one core, so importing on another one delays nothing
        threading.Thread(target=_import, args=(_OF_FINISHING,), daemon=True).start()
    return session.run(plan, directory, on_progress, early)


def _import(modules: Iterable[str]) -> None:
    for module in modules:
        importlib.import_module(module)


def in_this_process(plan: Plan, directory: Path, on_progress: Progress) -> SessionResult:
    """Execute a simulated Plan in this process, which may have imported the needed modules already."""
    from testbed.execution import host

    return host.attempt(plan, directory, on_progress, cores=capacity.usable_cores())


def train(
    plan: Plan,
    run: RunDirectory,
    display: Display,
    execute: Execute = in_processes,
    followers: Sequence[Follower] = (),
) -> SessionResult:
    """Execute the Plan and show its progress. Errors and interrupts become an outcome, so results are always written.

    ``followers`` get every event as well. A follower that raises ``KeyboardInterrupt`` ends the run.
    """
    audience = Audience(plan, run, display, followers)
    (outcome,) = train_before([audience], lambda: [execute(plan, run.path, audience.take)])
    return outcome


class Audience:
    """The receivers of the events of a run, or of one of its jobs: a display, the run's log, and followers."""

    def __init__(self, plan: Plan, run: RunDirectory, display: Display, followers: Sequence[Follower] = ()) -> None:
        self._plan = plan
        self.run = run
        self._shown = Logged(display, run.file("log"), plan)
        self._followers = followers

    def __enter__(self) -> Self:
        self._shown.__enter__()
        for message in capacity.warnings(self._plan):
            self._warn(message)
        for follower in self._followers:
            follower.start(self._plan, self.run.path)
        return self

    def __exit__(self, *error: object) -> None:
        self._shown.__exit__(*error)

    def take(self, event: Mapping[str, Any]) -> None:
        """Show, log and pass on an event."""
        record.add_capabilities(self.run, event)
        self._shown.show(event)
        for follower in self._followers:
            for message in follower.take(event):
                self._warn(message)

    def outcome(self, outcome: SessionResult) -> SessionResult:
        """Return the outcome of the run, which a follower may have changed by ending the run."""
        for follower in self._followers:
            outcome = follower.outcome(outcome)
        return outcome

    def _warn(self, message: str) -> None:
        self._shown.show({"kind": "warning", "message": message})


def train_before(audiences: Sequence[Audience], execute: Callable[[], Sequence[SessionResult]]) -> list[SessionResult]:
    """Execute runs while ``audiences`` follow them. Return the outcome of each; an error of ``execute`` fails all."""
    outcomes: Sequence[SessionResult] = [INTERRUPTED] * len(audiences)
    try:
        with ExitStack() as stack:
            for audience in audiences:
                stack.enter_context(audience)
            outcomes = execute()
    except KeyboardInterrupt:
        pass
    except TestbedError as error:
        outcomes = [SessionResult("failed", str(error), error.exit_code)] * len(audiences)
    except OSError as error:  # a full disk, or a directory that has gone
        ours = of_os(error, audiences[0].run.path)
        if ours is None:
            raise
        outcomes = [SessionResult("failed", str(ours), ours.exit_code)] * len(audiences)
    return [audience.outcome(outcome) for audience, outcome in zip(audiences, outcomes, strict=True)]


def finish(
    run: RunDirectory,
    plan: Plan,
    outcome: SessionResult,
    *,
    started: str,
    duration_s: Callable[[], float],
    hurry: Callable[[], bool] = lambda: False,
    followers: Sequence[Follower] = (),
) -> tuple[SessionResult, StoredRun]:
    """Write all files that follow from the events, each atomically, and the final status last.

    started     begin of the command, UTC in ISO 8601
    duration_s  returns the duration of the command so far; called once more after the figure has been drawn
    hurry       if it returns true, leave the figure out; ``testbed show RUN --figure`` draws it

    Return the outcome, which is ``diverged`` if the training has diverged, and the run, which still has the status of a
    run in progress. Raise ``TestbedError`` if a file cannot be written; the run has a final status in this case, too.
    """
    with record.final_status(run, outcome.message):
        concluded = record.conclude(run, plan, outcome, started, duration_s())
        outcome = concluded.outcome
        result = concluded.result
        from analysis.load import stored_run
        from testbed.display.summary import as_text, summary_of

        stored = stored_run(run.path, concluded.plan, result, concluded.tables)
        if (result["rounds"] or (plan.program is not None and outcome.status in COMPLETED)) and not hurry():
            draw(run, stored)
        if not plan.is_exact:  # ``result.json`` of an exact run states virtual time and comes from its guest
            result["duration_s"] = round(duration_s(), 3)
            atomic.write_json(run.file("result.json"), result)
        atomic.write_text(run.file("summary.txt"), as_text(summary_of(stored)))
        run.set_status(outcome.status, result["plan_sha256"], outcome.message)
        for follower in followers:
            follower.end(run.path)
        return outcome, stored


def since(begin_s: float) -> dict[str, Any]:
    """Return ``started`` and ``duration_s`` of a command that began at ``begin_s`` by ``time.monotonic``."""
    started = datetime.fromtimestamp(time.time() - (time.monotonic() - begin_s), UTC).isoformat(timespec="seconds")
    return {"started": started, "duration_s": lambda: time.monotonic() - begin_s}


def draw(run: RunDirectory, stored: StoredRun) -> Path:
    """Draw ``figure.png`` of a run that has completed rounds, and return its path."""
    from analysis.figures.run import draw as draw_figure

    with atomic.replacing(run.file("figure.png")) as temporary:
        draw_figure(stored).savefig(temporary, format="png")
    return run.file("figure.png")
