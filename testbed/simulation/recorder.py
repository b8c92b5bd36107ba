"""The records of one simulated node: its event log on disk, and the progress that it reports to the run's watcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from testbed.messages import Message
from testbed.plan.model import Plan
from testbed.results.events import EventLog, Transfer, microseconds
from testbed.results.progress import PASSED_ON, NodeProgress, Progress
from testbed.world import Work

Milestone = Callable[[str, dict[str, Any]], None]  # ``train``, ``round`` and ``epoch``, with their fields

BRIEF = frozenset({"compute", "wait", "held", "transfer"})  # kinds that a brief log leaves out

# With ``simulation.events: auto``, logs are brief if there are at least so many nodes. The limit is lower without
# servers, as the number of messages then grows with the square of the number of nodes.
_BRIEF_NODES = 2000
_BRIEF_RANKS = 300


def left_out(plan: Plan) -> frozenset[str]:
    """Return the kinds of events that the nodes of this Plan do not write."""
    events = plan.simulation.events
    limit = _BRIEF_NODES if plan.with_role("global_server") else _BRIEF_RANKS
    brief = events == "brief" or (events == "auto" and len(plan.nodes) >= limit)
    return BRIEF if brief else frozenset()


class ComputeEvent(msgspec.Struct, gc=False):
    """A ``compute`` event; see ``Transfer``. ``part``: the part of a step, if it was not a whole step."""

    t: float
    kind: str
    node: str
    t0: float
    work: str
    round: int
    modelled_s: float
    real_s: float
    overrun: bool
    part: str | msgspec.UnsetType


class WaitEvent(msgspec.Struct, gc=False):
    """A ``wait`` event; see ``Transfer``."""

    t: float
    kind: str
    node: str
    t0: float
    waiting_for: str


class VirtualRecorder(NodeProgress):
    """Writes events to ``log``, unless their kind is in ``left_out``.

    If ``left_out`` has ``transfer``, only transfers inside a LAN are left out. ``on_milestone`` is called at the start
    of training, at every round, and at every change of the membership.
    """

    def __init__(
        self,
        node: str,
        log: EventLog,
        progress: Progress,
        on_milestone: Milestone,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(node, progress)
        self._log = log
        self._on_milestone = on_milestone
        self._left_out = left_out
        self._leaves_out_lan = "transfer" in left_out

    def keeps(self, kind: str) -> bool:
        """Whether events of this kind are written."""
        return kind not in self._left_out

    def write(self, kind: str, t: float, fields: dict[str, Any]) -> None:
        self.activity += 1
        if kind in self._left_out:
            return
        self._log.append({"t": microseconds(t), "kind": kind, "node": self.node, **fields})
        if kind in PASSED_ON:
            if kind in ("train", "round", "epoch"):
                self._on_milestone(kind, fields)
            self.pass_on(kind, t, fields)

    def computed(self, work: Work, start_s: float, duration_s: float, t: float) -> None:
        """Write the ``compute`` event of a piece of work that has taken its modelled time."""
        self.activity += 1
        self._log.append(
            ComputeEvent(
                microseconds(t),
                "compute",
                self.node,
                microseconds(start_s),
                work.kind,
                work.round,
                duration_s,
                duration_s,
                False,
                work.part or msgspec.UNSET,
            )
        )

    def waited(self, since_s: float, waiting_for: str, t: float) -> None:
        self.activity += 1
        self._log.append(WaitEvent(microseconds(t), "wait", self.node, microseconds(since_s), waiting_for))

    def arrived(self, message: Message, payload_bytes: int, header_bytes: int, tier: str, t: float) -> None:
        """Write the ``transfer`` event of a message on the reliable channel.

        Best-effort messages have no such event; their receiver writes one event for many of them.
        """
        if tier == "wan":
            self.down_bytes += payload_bytes
        self.activity += 1
        if message.channel or (self._leaves_out_lan and tier == "lan"):
            return
        node = self.node
        self._log.append(
            Transfer(
                microseconds(t),
                "transfer",
                node,
                microseconds(message.sent_at_s),
                message.sender,
                node,
                message.kind._value_,
                message.key,
                message.round,
                payload_bytes,
                header_bytes,
                tier,
            )
        )
