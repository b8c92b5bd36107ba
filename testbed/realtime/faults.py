"""Injects the plan's faults into real processes: SIGKILL, SIGSTOP, SIGCONT, and SIGUSR1 as a request to leave."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from typing import Any

from testbed.plan.effects import NodeEffects
from testbed.plan.fault_clock import Due, FaultClock
from testbed.plan.model import Plan
from testbed.results.events import HAS_LEFT

OnFault = Callable[[Due, float], None]
Send = Callable[[str, signal.Signals], bool]

LEAVE_SIGNAL = signal.SIGUSR1
_SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "continue": signal.SIGCONT,
    "leave": LEAVE_SIGNAL,
}


class FaultInjector:
    """Sends the signals that are due by the plan's fault clock.

    ``killed``: the nodes that were sent SIGKILL and have not started again. ``effects``: which nodes are absent.
    """

    def __init__(
        self,
        plan: Plan,
        due: FaultClock,
        epoch_ns: int,
        send: Send,
        start_again: Callable[[str], None],
        on_fault: OnFault,
    ) -> None:
        """``send`` signals a node and returns whether it was running; ``start_again`` starts a lost node again."""
        self._due = due
        self._epoch_ns = epoch_ns
        self._send = send
        self._on_fault = on_fault
        self._start_again = start_again
        self.effects = NodeEffects(plan)
        self.killed: set[str] = set()

    @property
    def training_since_s(self) -> float | None:
        """When training began, if it has."""
        return self._due.training_since_s

    def take(self, line: dict[str, Any]) -> None:
        """Take a node's line of progress: it may say that training began, a round ended, or nodes have left."""
        if line["kind"] == "train" and self._due.training_since_s is None:
            self._due.started(line["t"])
            for due in self._due.past:  # in a resumed run, past faults still have their effects on nodes
                self.effects.apply(due)
            for node in self.effects.asked:
                self._send(node, LEAVE_SIGNAL)
        elif line["kind"] == "round":
            self._due.finished(line["round"], line["t"])
        elif line["kind"] == "epoch" and line["message"] == HAS_LEFT:
            self.effects.left(line["targets"].split(", "))

    def left_s(self) -> float:
        """Seconds until ``fire`` is to be called."""
        return max(0.0, self._due.due_s - self._now_s()) if self._due.due_s < math.inf else math.inf

    def fire(self) -> None:
        for due in self._due.take(self._now_s()):
            self._on_fault(due, self._now_s())
            for action, node in self.effects.apply(due):
                if action == "start":
                    self._start_again(node)
                elif self._send(node, _SIGNALS[action]) and action == "kill":
                    self.killed.add(node)

    def _now_s(self) -> float:
        return (time.monotonic_ns() - self._epoch_ns) / 1e9
