"""Faults in virtual time: nodes that are killed, paused, dismissed or cut off, when the Plan says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from testbed.errors import NodeLost
from testbed.plan.fault_clock import DONE_TO_NODES, Due, FaultClock
from testbed.plan.model import Plan
from testbed.plan.silence import silences
from testbed.simulation.clock import Clock

OnFault = Callable[[Due, float], None]


class Nodes(Protocol):
    """What faults do to nodes; implemented by ``testbed.simulation.run.Simulation``."""

    def kill(self, node: str, error: NodeLost) -> None:
        """End the node's process; ``error`` says why."""

    def pause(self, node: str, until_s: float) -> None:
        """Stop the node's process until then (SIGSTOP)."""

    def dismiss(self, node: str) -> None:
        """Ask the node to leave in good order."""

    def restart(self, node: str) -> None:
        """Start the node again, as a new process."""


class SimulatedFaults:
    """Applies the faults that the Plan's fault clock declares due. ``on_fault(fault, now_s)`` is called for each."""

    def __init__(self, plan: Plan, clock: Clock, due: FaultClock, nodes: Nodes, on_fault: OnFault) -> None:
        self._plan, self._clock, self._due, self._nodes, self._on_fault = plan, clock, due, nodes, on_fault
        self._armed_s = float("inf")  # time of the next look at the fault clock
        self._counts_rounds = bool(plan.faults)
        self._silences: list[tuple[float, str]] = []
        if due.training_since_s is not None:
            self._schedule_silences()
            self._arm()

    def take(self, kind: str, fields: dict[str, Any]) -> None:
        """Take note of a milestone that a node has recorded: the start of training, or a round."""
        if kind == "train" and self._due.training_since_s is None:
            self._due.started(self._clock.now)
            self._schedule_silences()
        elif kind == "round" and self._counts_rounds:
            self._due.finished(fields["round"], self._clock.now)
        self._arm()

    def _schedule_silences(self) -> None:
        since_s = self._due.training_since_s or 0.0
        for at_s, site in silences(self._plan):
            nodes = [node.name for node in self._plan.nodes if node.data_center == site]
            if since_s + at_s >= self._clock.now:
                self._lose_at(since_s + at_s, nodes)

    def _arm(self) -> None:
        due_s = max(self._due.due_s, self._clock.now)
        if due_s < self._armed_s:
            self._armed_s = due_s
            self._clock.at_background(due_s, self._fire)

    def _fire(self, _: Any) -> None:
        self._armed_s = float("inf")
        for due in self._due.take(self._clock.now):
            self._on_fault(due, self._clock.now)
            self._apply(due)
        self._arm()

    def _apply(self, due: Due) -> None:
        for node in due.fault.targets if due.fault.kind in DONE_TO_NODES else ():
            if due.fault.kind == "kill" and due.begins:
                self._nodes.kill(node, NodeLost(f"{node} was killed by signal 9, SIGKILL (a fault of the scenario)"))
            elif due.fault.kind == "leave":
                self._nodes.dismiss(node)
            elif due.fault.kind in ("kill", "join"):
                self._nodes.restart(node)
            elif due.begins:
                self._pause(node, due)

    def _pause(self, node: str, due: Due) -> None:
        self._nodes.pause(node, due.until_s)
        dead_after_s = self._plan.timeouts.dead_after_s
        if due.fault.for_s > dead_after_s:
            self._lose_at(due.planned_s + dead_after_s, [node])

    def _lose_at(self, at_s: float, nodes: list[str]) -> None:
        self._clock.at_background(at_s, lambda _: self._lose(nodes))

    def _lose(self, nodes: list[str]) -> None:
        for node in nodes:
            self._nodes.kill(node, NodeLost(f"lost {node}: no sign of life for {self._plan.timeouts.dead_after_s:g} s"))
