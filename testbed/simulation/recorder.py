"""What one simulated node tells: its event log on disk, and lines of progress for whoever watches the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from testbed.messages import Message
from testbed.results.events import microseconds

Progress = Callable[[dict[str, Any]], None]
Milestone = Callable[[str, dict[str, Any]], None]  # ``train`` and ``round``, with their fields

BRIEF = frozenset({"compute", "wait", "held", "transfer"})  # what a brief log leaves out

# What a watcher sees one by one; of the others it sees sums in ``status``.
_WATCHED = frozenset({"start", "train", "round", "evaluate", "final", "epoch", "warning", "error"})


class VirtualEventSink(Protocol):
    """What of ``testbed.results.events.EventLog`` is used."""

    def write(self, kind: str, t: float, **fields: Any) -> None: ...
    def append(self, event: dict[str, Any]) -> None: ...


class VirtualRecorder:
    """Writes events to ``log`` and passes the telling ones to ``progress``. Counts payload that crosses the WAN.

    ``on_milestone`` hears of the start of training, and of rounds. ``left_out``: kinds that are not written;
    ``transfer`` among them means those inside a LAN.
    """

    def __init__(
        self, node: str, log: VirtualEventSink, progress: Progress, on_milestone: Milestone,
        left_out: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        self.node, self._log, self._progress, self._on_milestone = node, log, progress, on_milestone
        self._left_out, self._silent_lan = left_out, "transfer" in left_out
        self._activity, self._round = 0, 0
        self._loss: float | None = None
        self._up_bytes = self._down_bytes = 0

    def keeps(self, kind: str) -> bool:
        """Whether events of this kind are written at all."""
        return kind not in self._left_out

    def write(self, kind: str, t: float, fields: dict[str, Any]) -> None:
        """One event at virtual time ``t``."""
        self._activity += 1
        if kind in self._left_out:
            return
        self._log.append({"t": microseconds(t), "kind": kind, **fields})
        if kind in _WATCHED:
            self._watched(kind, t, fields)

    def _watched(self, kind: str, t: float, fields: dict[str, Any]) -> None:
        if kind == "round":
            self._round, self._loss = fields["round"], fields.get("loss")
        if kind in ("train", "round"):
            self._on_milestone(kind, fields)
        self._progress({"kind": kind, "t": t, "node": self.node, **fields})

    def sent(self, tier: str, payload_bytes: int) -> None:
        """A message has been accepted for sending."""
        if tier == "wan":
            self._up_bytes += payload_bytes

    def arrived(self, message: Message, payload_bytes: int, header_bytes: int, tier: str, t: float) -> None:
        """Write the ``transfer`` event of a message that is here whole, if it came on the reliable channel."""
        if tier == "wan":
            self._down_bytes += payload_bytes
        self._activity += 1
        if message.channel or (self._silent_lan and tier == "lan"):
            return  # whoever receives best-effort messages writes one event for many
        self._log.append(
            {
                "t": microseconds(t), "kind": "transfer", "t0": microseconds(message.sent_at_s),
                "source": message.sender, "target": self.node, "message": message.kind._value_, "key": message.key,
                "round": message.round, "payload_bytes": payload_bytes, "header_bytes": header_bytes, "tier": tier,
            }
        )  # fmt: skip

    def status(self, t: float, waits: list[tuple[str, float]]) -> None:
        """Tell the watcher where this node stands."""
        self._progress(
            {
                "kind": "status", "t": t, "node": self.node, "round": self._round, "loss": self._loss,
                "wan_up_bytes": self._up_bytes, "wan_down_bytes": self._down_bytes,
                "waiting_for": waits[0][0] if waits else "", "waits": waits, "activity": self._activity,
            }
        )  # fmt: skip
