"""Applies the Plan's faults to nodes in virtual time: kills, pauses, dismisses, restarts or cuts them off."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from testbed.errors import NodeLost
from testbed.plan.effects import NodeEffects
from testbed.plan.fault_clock import DONE_TO_NODES, Due, FaultClock
from testbed.plan.model import Plan
from testbed.plan.silence import Span, cut_off, merged, silences
from testbed.results.events import HAS_LEFT
from testbed.simulation.clock import Clock

OnFault = Callable[[Due, float], None]


class Nodes(Protocol):
    """The actions of faults on nodes; implemented by ``testbed.simulation.job.SimulatedJob``."""

    def kill(self, node: str, error: NodeLost, unheard_s: float = 0.0) -> None:
        """End the node's process; ``error`` says why. Others hear of it after ``unheard_s`` if the path is down."""

    def pause(self, node: str, until_s: float) -> bool:
        """Stop the node's process until ``until_s`` (SIGSTOP). Return whether the node has a process."""

    def dismiss(self, node: str) -> None:
        """Ask the node to leave in good order."""

    def restart(self, nodes: tuple[str, ...]) -> list[str]:
        """Start a new process for each of these nodes that does not run. Return their names."""


class SimulatedFaults:
    """Applies the faults that the Plan's fault clock declares due. ``on_fault(fault, now_s)`` is called for each.

    ``links_since_s()`` returns when the traces of links began; these traces may cut nodes off.
    """

    def __init__(
        self,
        plan: Plan,
        clock: Clock,
        due: FaultClock,
        nodes: Nodes,
        on_fault: OnFault,
        links_since_s: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._due = due
        self._nodes = nodes
        self._on_fault = on_fault
        self._links_since_s = links_since_s
        self._armed_s = float("inf")  # time of the next look at the fault clock
        self._counts_rounds = bool(plan.faults)
        self._effects = NodeEffects(plan)
        self._processes: Counter[str] = Counter()  # by node: the number of its present process
        self._pauses: defaultdict[tuple[str, int], list[Span]] = defaultdict(list)  # by process
        self._cut_off = cut_off(plan)
        if due.training_since_s is not None:
            self._schedule_silences()
            self._arm()

    def resume(self) -> None:
        """Note the faults from before the instant at which a resumed run continues, as some may last beyond it.

        Ask processes again to leave that had been asked and have not left, as no node's state records the request.
        """
        for due in self._due.past:
            for action, node in self._effects.apply(due) if due.fault.kind in DONE_TO_NODES else ():
                if action == "kill":
                    self._processes[node] += 1
                elif action == "stop":
                    self._count_silence(node, due)
        if self._due.paused_s:
            self._clock.at_background(self._due.resumed_s, self._pause_again)
        for node in self._effects.asked:
            self._nodes.dismiss(node)

    def _pause_again(self, _: Any) -> None:
        for node, until_s in self._due.paused_s.items():
            self._nodes.pause(node, until_s)

    def take(self, kind: str, fields: dict[str, Any]) -> None:
        """Handle a milestone that a node has recorded: the start of training, a round, or a change of membership."""
        if kind == "train" and self._due.training_since_s is None:
            self._due.started(self._clock.now)
            self._schedule_silences()
            self.resume()
        elif kind == "round" and self._counts_rounds:
            self._due.finished(fields["round"], self._clock.now)
        elif kind == "epoch" and fields["message"] == HAS_LEFT:
            self._effects.left(fields["targets"].split(", "))
        self._arm()

    def _schedule_silences(self) -> None:
        since_s = self._links_since_s()
        for at_s, site in silences(self._plan):
            nodes = [node.name for node in self._plan.nodes if node.data_center == site]
            if since_s + at_s >= max(self._clock.now, self._due.resumed_s):
                self._clock.at_background(since_s + at_s, partial(self._lose, nodes))

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
        if due.fault.kind not in DONE_TO_NODES:
            return
        for action, node in self._effects.apply(due):
            if action == "kill":
                self._processes[node] += 1
                error = NodeLost(f"{node} was killed by signal 9, SIGKILL (a fault of the scenario)")
                self._nodes.kill(node, error, self._unheard_s(node))
            elif action == "leave":
                self._nodes.dismiss(node)
            elif action == "start":
                self._processes.update(self._nodes.restart(self._effects.starting(node)))
            elif action == "stop" and self._nodes.pause(node, due.until_s):
                self._count_silence(node, due)

    def _unheard_s(self, node: str) -> float:
        """Return how long a node that is cut off now stays unheard: until it is back, or counts as lost."""
        now_s = self._clock.now - self._links_since_s()
        for begin_s, end_s in self._cut_off.get(self._plan.node(node).data_center, ()):
            if begin_s <= now_s < end_s:
                return max(0.0, min(end_s, begin_s + self._plan.timeouts.dead_after_s) - now_s)
        return 0.0

    def _count_silence(self, node: str, due: Due) -> None:
        """Schedule the loss of a process that is stopped, cut off, or one after the other, for too long."""
        since_s = self._links_since_s()
        process = self._processes[node]
        pauses = self._pauses[node, process]
        pauses.append((due.planned_s, due.until_s))
        outages = self._cut_off.get(self._plan.node(node).data_center, ())
        for begin_s, end_s in merged([*pauses, *((since_s + begin_s, since_s + end_s) for begin_s, end_s in outages)]):
            lost_s = begin_s + self._plan.timeouts.dead_after_s
            if end_s > lost_s >= max(self._clock.now, self._due.resumed_s):
                self._clock.at_background(lost_s, partial(self._lose_process, node, process))

    def _lose_process(self, node: str, process: int, _: Any) -> None:
        if self._processes[node] == process:
            self._lose([node], None)

    def _lose(self, nodes: list[str], _: Any) -> None:
        for node in nodes:
            self._nodes.kill(node, NodeLost(f"lost {node}: no sign of life for {self._plan.timeouts.dead_after_s:g} s"))
