"""What one node records: events in its log on disk, and lines of progress for the process that watches the run."""

from __future__ import annotations

from typing import Any

from testbed.ids import data_center_of
from testbed.messages import Message
from testbed.results.events import EventLog, Transfer
from testbed.results.progress import NodeProgress, Progress


class EventRecorder(NodeProgress):
    """Writes events to ``log``. ``activity`` counts transfers, computations and rounds."""

    def __init__(self, node: str, log: EventLog, progress: Progress) -> None:
        super().__init__(node, progress)
        self._log = log
        self._tiers: dict[str, str] = {}  # by peer

    def write(self, kind: str, t: float, fields: dict[str, Any]) -> None:
        """One event at ``t`` seconds of the run."""
        if kind == "wait":
            fields.setdefault("round", self.last_round)  # the last one that was completed
        self._log.write(kind, t, **fields)
        self.activity += kind in ("transfer", "compute", "round")
        self.pass_on(kind, t, fields)

    def sent(self, to: str, message: Message) -> None:
        """Count a message that the role has sent."""
        if (self._tiers.get(to) or self._tier(to)) == "wan":
            self.up_bytes += message.payload_bytes

    def arrived(self, message: Message, payload_bytes: int, overhead_bytes: int, t: float) -> None:
        """Count a complete message; if it came on the reliable channel, write its ``transfer`` event.

        The receiver of best-effort messages writes one event for many of them.
        """
        tier = self._tiers.get(message.sender) or self._tier(message.sender)
        if tier == "wan":
            self.down_bytes += payload_bytes
        self.activity += 1
        if message.channel:
            return
        self._log.append(
            Transfer(
                round(t, 6), "transfer", self.node, round(message.sent_at_s, 6), message.sender, self.node,
                message.kind._value_, message.key, message.round, payload_bytes, overhead_bytes, tier,
            )
        )  # fmt: skip

    def library_transfer(self, t: float, source: str, payload_bytes: int, fields: dict[str, Any]) -> None:
        """Write the ``transfer`` event of what a library's own connection has carried, without our headers."""
        tier = self._tier(source)
        if tier == "wan":
            self.down_bytes += payload_bytes
        about = {"source": source, "target": self.node, "payload_bytes": payload_bytes, "header_bytes": 0, "tier": tier}
        self.write("transfer", t, {**fields, **about})

    def status(self, t: float, waits: list[tuple[str, float]]) -> None:
        """Report progress and current waits to the watcher, and flush the log so that a crash loses little of it."""
        self._log.flush()
        super().status(t, waits)

    def _tier(self, peer: str) -> str:
        tier = self._tiers[peer] = "lan" if data_center_of(peer) == data_center_of(self.node) else "wan"
        return tier
