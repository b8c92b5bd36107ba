"""What one node records: events in its log on disk, and lines of progress for the process that watches the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from testbed.ids import data_center_of
from testbed.messages import Message

Progress = Callable[[dict[str, Any]], None]

# Kinds that the watcher gets one by one; of the others it gets sums in ``status``.
_WATCHED = frozenset({"start", "train", "round", "evaluate", "final", "epoch", "warning", "error"})


class EventSink(Protocol):
    """The part of ``testbed.results.events.EventLog`` that is used here."""

    def write(self, kind: str, t: float, **fields: Any) -> None: ...
    def flush(self) -> None: ...


class EventRecorder:
    """Writes events to ``log`` and passes those that a watcher needs to ``progress``. Counts payload over the WAN.

    ``activity`` counts transfers, computations and rounds: a node whose count does not grow makes no progress.
    """

    def __init__(self, node: str, log: EventSink, progress: Progress) -> None:
        self.node, self._log, self._progress = node, log, progress
        self.activity = 0
        self._round = 0
        self._loss: float | None = None
        self._wan_bytes = {"up": 0, "down": 0}

    def write(self, kind: str, t: float, fields: dict[str, Any]) -> None:
        """One event at ``t`` seconds of the run."""
        if kind == "wait":
            fields.setdefault("round", self._round)  # the last one that was completed
        self._log.write(kind, t, **fields)
        self.activity += kind in ("transfer", "compute", "round")
        if kind == "round":
            self._round, self._loss = fields["round"], fields.get("loss")
        if kind in _WATCHED:
            self._progress({"kind": kind, "t": t, "node": self.node, **fields})

    def sent(self, to: str, message: Message) -> None:
        """Count a message that the role has sent."""
        if self._tier(to) == "wan":
            self._wan_bytes["up"] += message.payload_bytes

    def arrived(self, message: Message, overhead_bytes: int, t: float) -> None:
        """Count a complete message; if it came on the reliable channel, write its ``transfer`` event.

        The receiver of best-effort messages writes one event for many of them.
        """
        tier = self._tier(message.sender)
        if tier == "wan":
            self._wan_bytes["down"] += message.payload_bytes
        if message.channel:
            self.activity += 1
            return
        fields = {
            "t0": round(message.sent_at_s, 6), "source": message.sender, "target": self.node,
            "message": str(message.kind), "key": message.key, "round": message.round,
            "payload_bytes": message.payload_bytes, "header_bytes": overhead_bytes, "tier": tier,
        }  # fmt: skip
        self.write("transfer", t, fields)

    def library_transfer(self, t: float, source: str, payload_bytes: int, fields: dict[str, Any]) -> None:
        """Write the ``transfer`` event of what a library's own connection has carried, without our headers."""
        tier = self._tier(source)
        if tier == "wan":
            self._wan_bytes["down"] += payload_bytes
        about = {"source": source, "target": self.node, "payload_bytes": payload_bytes, "header_bytes": 0, "tier": tier}
        self.write("transfer", t, {**fields, **about})

    def status(self, t: float, waits: list[tuple[str, float]]) -> None:
        """Report progress and current waits to the watcher, and flush the log so that a crash loses little of it."""
        self._log.flush()
        self._progress(
            {
                "kind": "status", "t": t, "node": self.node, "round": self._round, "loss": self._loss,
                "wan_up_bytes": self._wan_bytes["up"], "wan_down_bytes": self._wan_bytes["down"],
                "waiting_for": waits[0][0] if waits else "", "waits": waits, "activity": self.activity,
            }
        )  # fmt: skip

    def _tier(self, peer: str) -> str:
        return "lan" if data_center_of(peer) == data_center_of(self.node) else "wan"
