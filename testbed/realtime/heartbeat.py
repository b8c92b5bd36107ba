"""Who is alive, and what a loss means.

Every node keeps one heartbeat connection, to the run's *monitor* (the scheduler), and both ends beat. So n nodes need
n connections and not n², and bulk data between two nodes cannot delay a sign of life behind megabytes of its own. A
crash is seen sooner, by the end of a connection. What neither shows, a path between two others that fails, ends in
TCP_USER_TIMEOUT or at the deadline of the wait that it holds up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.errors import NodeLost


class PeerLost(NodeLost):
    """``node`` has lost ``peer``: usually a consequence, of which the peer's own end is the cause."""

    def __init__(self, node: str, peer: str, cause: str) -> None:
        self.node, self.peer, self.cause = node, peer, cause
        super().__init__(f"{node} lost {peer}: {cause}")


def error_of_loss(node: str, peer: str, cause: str, finishing: bool) -> PeerLost | None:
    """The one place that decides what the loss of a peer means: the error that ends this node, or nothing.

    A node whose own role has ended in good order needs nobody any more.
    """
    return None if finishing else PeerLost(node, peer, cause)


@dataclass(slots=True)
class Liveness:
    """Tells the silent from the living. Times are seconds on one clock, given by the caller.

    ``interval_s``: how often ``silent`` is going to be asked. ``dead_after_s``: silence longer than this is death.
    """

    interval_s: float
    dead_after_s: float
    _asked_at_s: float | None = field(default=None)
    _awake_since_s: float = field(default=0.0)

    def silent(self, heard_at_s: dict[str, float], now_s: float) -> list[str]:
        """Who has been silent for too long.

        If this node itself was stopped or starved, the others' signs of life lie unread: then nobody is blamed until
        ``dead_after_s`` after it came back.
        """
        if self._asked_at_s is not None and now_s - self._asked_at_s > 2 * self.interval_s:
            self._awake_since_s = now_s
        self._asked_at_s = now_s
        return [peer for peer, at_s in heard_at_s.items() if now_s - max(at_s, self._awake_since_s) > self.dead_after_s]
