"""What one node tells the outside: its event log on disk, and lines of progress for whoever watches the run."""

from __future__ import annotations

from typing import Any, Protocol

from testbed.ids import data_center_of
from testbed.messages import Message
from testbed.results.progress import NodeProgress, Progress


class EventSink(Protocol):
    """What of ``testbed.results.events.EventLog`` is used."""

    def write(self, kind: str, t: float, **fields: Any) -> None: ...
    def flush(self) -> None: ...


class EventRecorder(NodeProgress):
    """Writes events to ``log``. ``activity`` counts transfers, computations and rounds."""

    def __init__(self, node: str, log: EventSink, progress: Progress) -> None:
        super().__init__(node, progress)
        self._log = log

    def write(self, kind: str, t: float, fields: dict[str, Any]) -> None:
        if kind == "wait":
            fields.setdefault("round", self.last_round)  # the last one that was completed
        self._log.write(kind, t, **fields)
        self.activity += kind in ("transfer", "compute", "round")
        self.pass_on(kind, t, fields)

    def sent(self, to: str, message: Message) -> None:
        if self._tier(to) == "wan":
            self.up_bytes += message.payload_bytes

    def arrived(self, message: Message, overhead_bytes: int, t: float) -> None:
        """Write the ``transfer`` event of a message that is here whole, if it came on the reliable channel."""
        tier = self._tier(message.sender)
        if tier == "wan":
            self.down_bytes += message.payload_bytes
        if message.channel:
            self.activity += 1
            return  # whoever receives best-effort messages writes one event for many
        fields = {
            "t0": round(message.sent_at_s, 6), "source": message.sender, "target": self.node,
            "message": str(message.kind), "key": message.key, "round": message.round,
            "payload_bytes": message.payload_bytes, "header_bytes": overhead_bytes, "tier": tier,
        }  # fmt: skip
        self.write("transfer", t, fields)

    def foreign(
        self, message: str, source: str, size_bytes: int, span_s: tuple[float, float], key: int, round_: int
    ) -> None:  # fmt: skip
        """Write the ``transfer`` event of what a library's own connection has carried; ``span_s``: begin and end."""
        if self._tier(source) == "wan":
            self.down_bytes += size_bytes
        fields = {
            "t0": round(span_s[0], 6), "source": source, "target": self.node, "message": message, "key": key,
            "round": round_, "payload_bytes": size_bytes, "header_bytes": 0, "tier": self._tier(source),
        }  # fmt: skip
        self.write("transfer", span_s[1], fields)

    def status(self, t: float, waits: list[tuple[str, float]]) -> None:
        """Report the node's status, and flush the log so that a crash loses little of it."""
        self._log.flush()
        super().status(t, waits)

    def _tier(self, peer: str) -> str:
        return "lan" if data_center_of(peer) == data_center_of(self.node) else "wan"
