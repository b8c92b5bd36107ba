"""Faults among real processes: SIGKILL, SIGSTOP and SIGCONT, and SIGUSR1 to ask for leaving, when the Plan says so."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from typing import Any

from testbed.plan.fault_clock import Due, FaultClock

OnFault = Callable[[Due, float], None]
Send = Callable[[str, signal.Signals], bool]

LEAVE_SIGNAL = signal.SIGUSR1
_SIGNALS = {
    ("kill", True): signal.SIGKILL,
    ("pause", True): signal.SIGSTOP,
    ("pause", False): signal.SIGCONT,
    ("leave", True): LEAVE_SIGNAL,
}


class FaultInjector:
    """Asks the Plan's fault clock what is due, and sends signals. ``killed``: who has died of it."""

    def __init__(
        self, due: FaultClock, epoch_ns: int, send: Send, revive: Callable[[str], None], on_fault: OnFault
    ) -> None:
        """``revive`` starts a node again, if the run has gone on without it."""
        self._due, self._epoch_ns, self._send, self._on_fault = due, epoch_ns, send, on_fault
        self._revive = revive
        self.killed: set[str] = set()

    @property
    def training_since_s(self) -> float | None:
        """When training began, if it has."""
        return self._due.training_since_s

    def take(self, line: dict[str, Any]) -> None:
        """A line of progress of some node."""
        if line["kind"] == "train":
            self._due.started(line["t"])
        elif line["kind"] == "round":
            self._due.finished(line["round"], line["t"])

    def left_s(self) -> float:
        """How long until ``fire`` is to be called."""
        return max(0.0, self._due.due_s - self._now_s()) if self._due.due_s < math.inf else math.inf

    def fire(self) -> None:
        """Do what is due."""
        for due in self._due.take(self._now_s()):
            self._on_fault(due, self._now_s())
            self._do(due)

    def _do(self, due: Due) -> None:
        number = _SIGNALS.get((due.fault.kind, due.begins))
        for node in due.fault.targets if number is not None else ():
            if self._send(node, number) and number is signal.SIGKILL:  # type: ignore[arg-type]
                self.killed.add(node)
        if due.fault.kind == "join" or (due.fault.kind == "kill" and not due.begins):
            for node in due.fault.targets:
                self._revive(node)

    def _now_s(self) -> float:
        return (time.monotonic_ns() - self._epoch_ns) / 1e9
