"""Reports the progress of nodes to the process that watches the run, in the real and in the virtual world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Progress = Callable[[dict[str, Any]], None]

# kinds of events that are passed on one by one; ``status`` summarises the others
PASSED_ON = frozenset({"start", "train", "round", "evaluate", "final", "epoch", "warning", "error"})


class NodeProgress:
    """Passes a node's events of the kinds ``PASSED_ON`` to ``progress``, and reports its status.

    activity    increases while the node makes progress; the watcher compares two values
    up_bytes    payload that the node has sent across the WAN
    down_bytes  payload that the node has received across the WAN
    """

    def __init__(self, node: str, progress: Progress) -> None:
        self.node = node
        self._progress = progress
        self.activity = self.up_bytes = self.down_bytes = 0
        self.last_round = 0
        self._loss: float | None = None

    def pass_on(self, kind: str, t: float, fields: dict[str, Any]) -> None:
        if kind not in PASSED_ON:
            return
        if kind == "round":
            self.last_round = fields["round"]
            self._loss = fields.get("loss")
        self._progress({"kind": kind, "t": t, "node": self.node, **fields})

    def status(self, t: float, waits: list[tuple[str, float]]) -> None:
        """Report the node's status. ``waits`` has the name and the begin (s) of each wait, the longest wait first."""
        self._progress(
            {
                "kind": "status",
                "t": t,
                "node": self.node,
                "round": self.last_round,
                "loss": self._loss,
                "wan_up_bytes": self.up_bytes,
                "wan_down_bytes": self.down_bytes,
                "waiting_for": waits[0][0] if waits else "",
                "waits": waits,
                "activity": self.activity,
            }
        )
