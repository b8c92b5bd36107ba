"""The launcher's side of a run: starts the host process, passes its progress on, ends it on request.

The host (``testbed.execution.host``) is a separate process for every back end: it may import torch, enter namespaces
and fork, while the command stays light and keeps the terminal. They communicate over pipes: the host writes progress as
JSON lines to its standard output; the launcher writes the run's directory, and later ``stop``, to the host's standard
input. When the launcher ends, by whatever signal, the pipe closes and the host ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from testbed.environment import host_environment, own_interpreter
from testbed.errors import Interrupted
from testbed.execution import exact
from testbed.execution.deployment import Ground, alone
from testbed.execution.scripts import SIMULATION, failure_files
from testbed.plan.model import Plan
from testbed.processes.child import Child, spawn
from testbed.results import COMPLETED
from testbed.results.failures import crash_in
from testbed.results.oom_kills import OomKills
from testbed.results.progress import Progress

if TYPE_CHECKING:
    from emulation.probe import Probing

Event = Mapping[str, Any]

STOP_GRACE_S = 10.0
HOST = "testbed.execution.host"  # the module that is the host process
TOLD_LATER = "-"  # in place of the run's directory
LOG = "host.log"
_ONLY = ""  # the name of a run's only job
_IMPORTS = ("torch", "testbed.engine.roles")  # take a second
_OF_PROCESSES = (*_IMPORTS, "testbed.realtime.fleet", "testbed.execution.roles")
_OF_NETWORK = ("testbed.execution.emulate", "testbed.execution.prediction", "emulation.network")  # made before nodes
IMPORTED_EARLY = {
    "simulate": (*_IMPORTS, "testbed.simulation.run"),
    "local": _OF_PROCESSES,
    "emulate": (*_OF_NETWORK, *_OF_PROCESSES),
}


@dataclass(frozen=True, slots=True)
class SessionResult:
    """How a run ended. ``status`` is a final state of ``rundir``."""

    status: str
    message: str
    exit_code: int


INTERRUPTED = SessionResult("interrupted", "interrupted; the results so far are kept", Interrupted.exit_code)


class Follower:
    """Takes the progress events of a run, and may end it; the base of callbacks and live logs."""

    def start(self, plan: Plan, directory: Path) -> None:
        """Prepare for a run that is about to start in this run directory."""

    def take(self, event: Event) -> Iterable[str]:
        """Take an event and return warnings. Raise ``KeyboardInterrupt`` to end the run."""
        return ()

    def outcome(self, outcome: SessionResult) -> SessionResult:
        """Return how the run ended: ``outcome``, unless the follower ended the run."""
        return outcome

    def end(self, directory: Path) -> None:
        """Finish: the results have been written."""


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A started host process, in its own session; ``stop`` on its standard input ends the run.

    ``lines``: yields its lines of progress until it has ended; after an interruption, the next iteration goes on.
    ``early_errors``: standard error of the host before it knew the place of the run's log.
    ``told``: outcomes of the jobs as the host reported them, by job; the only job of a run has the empty name.
    ``probing``: a probe of this machine's capabilities, which runs meanwhile if the host is to emulate.
    """

    process: Child
    lines: Iterable[str]
    early_errors: IO[str] | None = None
    told: dict[str, SessionResult] = field(default_factory=dict)
    probing: Probing | None = None


@contextlib.contextmanager
def early_host(back_end: str) -> Iterator[HostProcess | None]:
    """Start a host process for ``run`` before there is a plan, so that it imports torch while the plan is made.

    Yield ``None`` for back ends whose host does not run on this machine or does not always import torch, and if the
    host cannot be started: ``run`` then reports the reason. The host is ended when the context is left.
    """
    host = None
    if (modules := IMPORTED_EARLY.get(back_end)) is not None:
        with contextlib.suppress(OSError):
            host = _started(back_end == "emulate", modules)
    if host is not None and back_end == "emulate":
        from emulation.probe import Probing

        host = replace(host, probing=Probing())
    try:
        yield host
    finally:
        if host is not None:
            _end(host)


def same_host(one: str, other: str) -> bool:
    """Return whether two back ends can use the same early host: only that of an emulated run is in a sandbox."""
    return all(back_end in IMPORTED_EARLY for back_end in (one, other)) and (one == "emulate") == (other == "emulate")


def run(plan: Plan, directory: Path, on_progress: Progress, early: HostProcess | None = None) -> SessionResult:
    """Run the plan in ``directory``/plan.json; see ``run_jobs``."""
    (outcome,) = run_jobs(alone(plan, directory, on_progress), early)
    return outcome


def run_jobs(ground: Ground, early: HostProcess | None = None) -> list[SessionResult]:
    """Run the jobs of a run's directory. Block until all have ended and none of their processes is left.

    ``early``: a host of ``early_host`` for the plan's back end; it takes this run and no other.
    """
    plan = ground.plan
    directory = ground.directory
    on_progress = ground.take
    if plan.is_emulated:
        from emulation.sandbox import require_seen
        from testbed.execution.sweep_files import named_files

        named = [each.sent for deployment in ground.deployments for each in named_files(deployment.plan)]
        require_seen([directory, *named])

    host = early or _start(plan, directory)
    others = SessionResult("failed", "", 1)
    try:
        _tell(host, directory)
        others = _follow(host, plan, directory, on_progress)
    except KeyboardInterrupt:
        others = _stop(host, on_progress)
    finally:
        _end(host)
        if plan.is_exact:
            exact.close(directory, "failed" if _any_failed(host, others) else "done")
    return [host.told.get(each.job.name, others) for each in ground.deployments]


def _any_failed(host: HostProcess, others: SessionResult) -> bool:
    return any(each.status == "failed" for each in host.told.values() or [others])


def _start(plan: Plan, directory: Path) -> HostProcess:
    if plan.is_exact:
        kernel = exact.start(plan, directory)
        return HostProcess(kernel, exact.Lines(kernel, directory))
    return _started(plan.is_emulated)


def _started(in_sandbox: bool, modules: Sequence[str] = ()) -> HostProcess:
    command = [*own_interpreter(), "-m", HOST, TOLD_LATER, *modules]
    if in_sandbox:
        from emulation.sandbox import sandbox_command

        command = sandbox_command(command)
    errors = open(os.memfd_create("errors of the host"), "w+", encoding="utf-8", errors="replace")
    # A session of its own: Ctrl-C on the terminal reaches the launcher only, which then asks the host to stop.
    process = spawn(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
        env=host_environment(),
    )
    assert process.stdout is not None
    return HostProcess(process, process.stdout, errors)


def _tell(host: HostProcess, directory: Path) -> None:
    """Send the run's directory to a host that waits for it."""
    if host.early_errors is not None:
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            host.process.send(str(directory))


def _follow(host: HostProcess, plan: Plan, directory: Path, on_progress: Progress) -> SessionResult:
    """Follow the host to its end. Return the outcome of the jobs for which the host reported none."""
    before = OomKills.now()
    _pass_on(host, on_progress)
    code = host.process.wait()
    assert code is not None
    if host.early_errors is not None:
        host.early_errors.seek(0)
        with open(directory / LOG, "a", encoding="utf-8") as log:
            log.write(host.early_errors.read())
    return SessionResult("failed", "" if host.told else _reason(plan, directory, code, before), 4)


def _pass_on(host: HostProcess, on_progress: Progress) -> None:
    """Pass progress on until the host has ended."""
    for event in _events(host.lines):
        if event["kind"] == "outcome":
            outcome = SessionResult(event["status"], event["message"], event["exit_code"])
            host.told[event.get("job", _ONLY)] = outcome
        else:
            on_progress(event)


def _events(lines: Iterable[str]) -> Any:
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a library's output
        if isinstance(event, dict) and "kind" in event:  # what a library prints may be JSON as well
            yield event


def _reason(plan: Plan, directory: Path, code: int, kills: OomKills) -> str:
    """Return why a host may have ended without an outcome: its script, or its exit code and the end of its log."""
    if (files := failure_files(plan, directory)) is not None:
        node, cause = files.explain(SIMULATION, code, kills)
        files.close()
        if node:
            return f"{node}: {cause}\n{files.note(node)}"
    log = directory / LOG
    text = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    killer = kills.killer() if code == -signal.SIGKILL else ""
    reason = f"signal {-code}{f' ({killer})' if killer else ''}" if code < 0 else f"exit code {code}"
    if crash := crash_in("\n".join(text)):
        return f"the host process ended with {reason}: {crash} (host.log has the stacks)"
    said = text[-1] if text else "no output"
    if outside := dict.fromkeys(file.path for file in plan.code):
        said += f"; code from outside took part, and may have ended it (os._exit, say): {', '.join(outside)}"
    return f"the host process ended with {reason}: {said} (see host.log)"


def _stop(host: HostProcess, on_progress: Progress) -> SessionResult:
    """End the run. Return the outcome of the jobs that have not completed by then."""
    # A timer, as only the main thread may set an alarm. Killing the host ends its lines.
    too_late = threading.Timer(STOP_GRACE_S, host.process.kill_group)
    try:
        with contextlib.suppress(BrokenPipeError):  # it has ended already, and may have told how
            host.process.send("stop")
        too_late.start()
        on_progress({"kind": "stage", "name": "stopping"})
        _pass_on(host, on_progress)
    except KeyboardInterrupt:
        pass  # the second Ctrl-C: go straight to the end
    finally:
        too_late.cancel()
        if too_late.ident is not None:
            too_late.join()
    known = (*COMPLETED, INTERRUPTED.status)  # an interrupted one may have told in whose code it was
    for job in [job for job, told in host.told.items() if told.status not in known]:
        del host.told[job]
    return INTERRUPTED


def _end(host: HostProcess) -> None:
    """End the host and all its children, also those that users' scripts have started, and wait for the host.

    Users' programs are in their own process groups; the process around each notices the host's end and ends it.
    """
    if host.probing is not None:
        host.probing.close()
    host.process.kill_group()
    host.process.close()
    if host.early_errors is not None:
        host.early_errors.close()
