"""Follows a run while it runs: callbacks of the library's user, and live logs for experiment trackers.

    class Patience(testbed.Callback):
        def on_evaluate(self, evaluated):
            if evaluated.number > 50 and evaluated.accuracy < 0.5:
                raise testbed.StopRun("below 50 % after 50 rounds")

    testbed.run("quickstart", on="simulate", callbacks=[Patience()], log=["tensorboard"])

``tensorboard --logdir runs`` shows runs in progress.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import CapabilityError, RunFailed, ScenarioError
from testbed.execution.session import Event, Follower, SessionResult
from testbed.execution.sweep_run import Followers
from testbed.plan.model import Plan, to_json
from testbed.results.rounds import CompletedRound, RoundCounter
from testbed.results.scalars import EventTail, Scalars, tail_of

if TYPE_CHECKING:
    from analysis.load import StoredRun
    from analysis.trackers.base import Tracker

_POLL_EVERY_S = 0.5  # wall time


class StopRun(Exception):
    """A callback raises this to end the run now and keep its results. The exception's text is the reason."""


@dataclass(frozen=True, slots=True)
class EvaluatedRound:
    """An evaluation.

    Attributes:
        number: The round after which the values were copied; the first is 0.
        t_s: The time when the values were copied, in seconds on the run's clock.
        accuracy: On the test set; ``None`` if the data set has none.
        loss: Mean loss on the test set.
    """

    number: int
    t_s: float
    accuracy: float | None
    loss: float | None


class Callback:
    """Follows a run of ``testbed.run``; a subclass overrides what it needs.

    The process of ``testbed.run`` calls the methods one at a time, in the order of the run's events. A simulation waits
    until they return, and they cost no virtual time; real nodes do not wait. Times are in seconds on the run's clock.
    Any method may raise ``StopRun`` to end the run; in ``on_end`` it has no effect. Any other exception also ends the
    run, and ``testbed.run`` raises ``RunFailed`` from it.
    """

    def on_start(self, plan: Plan, directory: Path) -> None:
        """Called when the run is about to start in this run directory."""

    def on_round(self, completed: CompletedRound) -> None:
        """Called when all workers have completed a round.

        A process of a user's program counts as a worker from the first round that it reports until it ends. So this
        method may be called for a round before a slower process has reported any.
        """

    def on_evaluate(self, evaluated: EvaluatedRound) -> None:
        """Called when the model has been evaluated."""

    def on_end(self, run: StoredRun) -> None:
        """Called when the run has ended, for whatever reason, and its results have been written."""


class Callbacks(Follower):
    """Calls the callbacks of a run. Raise ``ScenarioError`` if an object is not a callback.

    open_run  opens the run directory; ``on_end`` gets the result
    error     the first exception that a callback has raised other than ``StopRun``
    message   says which method raised ``error``
    """

    def __init__(self, callbacks: Sequence[Callback], open_run: Callable[[Path], StoredRun]) -> None:
        if not isinstance(callbacks, Sequence):
            raise ScenarioError(f"callbacks: expected a list, got {type(callbacks).__name__}; write callbacks=[…]")
        for each in callbacks:
            if not isinstance(each, Callback):
                raise ScenarioError(
                    f"callbacks: {type(each).__name__} is not a testbed.Callback; derive its class from that, and give "
                    f"an object of it"
                )
        self._callbacks = callbacks
        self._open_run = open_run
        self._rounds = RoundCounter(())
        self._outcome: SessionResult | None = None
        self.error: Exception | None = None
        self.message = ""

    def start(self, plan: Plan, directory: Path) -> None:
        self._rounds = RoundCounter(node.name for node in plan.training_workers)
        self._call("on_start", lambda callback: callback.on_start(plan, directory))

    def take(self, event: Event) -> Iterable[str]:
        if self._outcome is not None:
            return ()  # the run is about to end
        for completed in self._rounds.take(event):
            self._tell_round(completed)
        if event["kind"] == "evaluate":
            accuracy = event.get("accuracy")
            loss = event.get("loss")
            evaluated = EvaluatedRound(event["round"], event["snapshot_t"], accuracy, loss)
            self._call("on_evaluate", lambda callback: callback.on_evaluate(evaluated))
        return ()

    def outcome(self, outcome: SessionResult) -> SessionResult:
        return self._outcome or outcome

    def end(self, directory: Path) -> None:
        for callback in self._callbacks:
            try:
                callback.on_end(self._open_run(directory))
            except StopRun:  # the run has ended already
                continue
            except Exception as error:  # the other callbacks and followers must still be told
                self._note(f"{type(callback).__name__}.on_end", error)

    def _tell_round(self, completed: CompletedRound) -> None:
        self._call("on_round", lambda callback: callback.on_round(completed))

    def _call(self, method: str, call: Callable[[Callback], None]) -> None:
        """Apply ``call`` to each callback. Messages name ``method``."""
        for callback in self._callbacks:
            name = f"{type(callback).__name__}.{method}"
            try:
                call(callback)
            except StopRun as stop:
                self._outcome = SessionResult("interrupted", f"stopped by {name}: {stop}".rstrip(": "), 0)
                raise KeyboardInterrupt from stop
            except Exception as error:
                self._note(name, error)
                self._outcome = SessionResult("failed", self.message, RunFailed.exit_code)
                raise KeyboardInterrupt from error

    def _note(self, name: str, error: Exception) -> None:
        message = f"{name} raised {type(error).__name__}: {error}"
        if self.error is None:
            self.error = error
            self.message = message
        else:
            warnings.warn(message, stacklevel=1)


def live_logs(kinds: Sequence[str]) -> Followers:
    """Return a function that makes the live log of one run of a sweep. The process that executes the run calls it.

    Raise ``ScenarioError`` or ``CapabilityError`` if a tracker is unknown or its package is missing.
    """
    LiveLog(kinds)
    return partial(_live_logs, tuple(kinds)) if kinds else tuple


def _live_logs(kinds: Sequence[str]) -> Sequence[Follower]:
    return [LiveLog(kinds)]


class LiveLog(Follower):
    """Writes the scalars of a run to experiment trackers while it runs. Each has a folder in the run directory.

    A tracker that fails during the run is given up with a warning, and the run goes on. One that cannot be started
    raises ``CapabilityError``.
    """

    def __init__(self, kinds: Sequence[str]) -> None:
        from analysis import trackers

        trackers.check(kinds)
        self._kinds = kinds
        self._trackers: dict[str, Tracker] = {}
        self._tail: EventTail | None = None  # stays None if another follower prevents the run from starting
        self._polled_s = 0.0

    def start(self, plan: Plan, directory: Path) -> None:
        from analysis.trackers import TRACKERS

        content = json.loads(to_json(plan))
        self._tail = tail_of(directory, content)
        self._series = Scalars(content)
        name = directory.resolve().name
        for kind in self._kinds:
            try:
                self._trackers[kind] = TRACKERS[kind](name, content, directory / kind)
            except Exception as error:
                raise CapabilityError(f"--log {kind}: {type(error).__name__}: {error}") from error

    def take(self, event: Event) -> Iterable[str]:
        if self._tail is None or time.monotonic() - self._polled_s < _POLL_EVERY_S:
            return ()
        problems = self._write(self._tail.poll())
        self._polled_s = time.monotonic()
        return problems

    def end(self, directory: Path) -> None:
        from analysis.trackers import summary
        from testbed.results.rundir import RunDirectory, read_json

        if self._tail is None:
            return
        for problem in self._write(self._tail.rest(), last=True):
            warnings.warn(problem, stacklevel=1)
        result = RunDirectory(directory).file("result.json")
        for kind, tracker in self._trackers.items():
            try:
                tracker.close(summary(read_json(result) if result.is_file() else None))
            except Exception as error:
                warnings.warn(f"--log {kind}: {type(error).__name__}: {error}", stacklevel=1)

    def _write(self, events: Iterable[Event], *, last: bool = False) -> list[str]:
        scalars = [scalar for event in events for scalar in self._series.take(event)]
        scalars += self._series.rest() if last else ()
        problems = []
        for kind, tracker in list(self._trackers.items()):
            try:
                tracker.write(scalars)
            except Exception as error:
                del self._trackers[kind]
                problems.append(f"--log {kind} is given up: {type(error).__name__}: {error}")
        return problems
