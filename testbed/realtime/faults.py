"""Faults of the plan among real processes: SIGKILL, SIGSTOP and SIGCONT, and SIGUSR1 as a request to leave."""

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
    """Sends the signals that the plan's fault clock says are due. ``killed``: nodes that have died of them."""

    def __init__(
        self, due: FaultClock, epoch_ns: int, send: Send, start_again: Callable[[str], None], on_fault: OnFault
    ) -> None:
        """``send`` returns whether the node was running; ``start_again`` starts a lost node again."""
        self._due, self._epoch_ns, self._send, self._on_fault = due, epoch_ns, send, on_fault
        self._start_again = start_again
        self.killed: set[str] = set()

    @property
    def training_since_s(self) -> float | None:
        """When training began, if it has."""
        return self._due.training_since_s

    def take(self, line: dict[str, Any]) -> None:
        """Follow the run's rounds by the nodes' lines of progress."""
        if line["kind"] == "train":
            self._due.started(line["t"])
        elif line["kind"] == "round":
            self._due.finished(line["round"], line["t"])

    def left_s(self) -> float:
        """Seconds until ``fire`` is to be called."""
        return max(0.0, self._due.due_s - self._now_s()) if self._due.due_s < math.inf else math.inf

    def fire(self) -> None:
        """Inject what is due."""
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
                self._start_again(node)

    def _now_s(self) -> float:
        return (time.monotonic_ns() - self._epoch_ns) / 1e9
