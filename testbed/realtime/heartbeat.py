"""Which peers are alive, and what the loss of one means.

Every node keeps one heartbeat connection to the run's *monitor* (the scheduler's node), on which both ends send a frame
every ``heartbeat_s``, from a thread of its own: a node whose event loop is held up lives. So n nodes need n connections
and not n², and bulk data between two nodes cannot delay a sign of life behind megabytes of its own. A crash is detected
sooner, by the end of a connection. What neither shows, a failing path between two other nodes, ends in TCP_USER_TIMEOUT
or at the deadline of the wait that it holds up.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from testbed.errors import NodeLost
from testbed.realtime.connection import Connection
from testbed.settings.run import Timeouts


class PeerLost(NodeLost):
    """``node`` has lost ``peer``: usually a consequence, whose cause is the peer's own end."""

    def __init__(self, node: str, peer: str, cause: str) -> None:
        self.node = node
        self.peer = peer
        self.cause = cause
        super().__init__(f"{node} lost {peer}: {cause}")


@dataclass(slots=True)
class Liveness:
    """Finds silent peers. Times are seconds on one clock, given by the caller.

    ``interval_s``: how often ``silent`` is called. ``dead_after_s``: a longer silence means that a peer is lost.
    """

    interval_s: float
    dead_after_s: float
    _asked_at_s: float | None = field(default=None)
    _awake_since_s: float = field(default=0.0)

    def silent(self, heard_at_s: dict[str, float], now_s: float) -> list[str]:
        """Peers that have been silent for too long.

        If this node itself was stopped or starved of processor time, the peers' signs of life are still unread: then no
        peer counts as silent until ``dead_after_s`` after this node came back.
        """
        if self._asked_at_s is not None and now_s - self._asked_at_s > 2 * self.interval_s:
            self._awake_since_s = now_s
        self._asked_at_s = now_s
        return [peer for peer, at_s in heard_at_s.items() if now_s - max(at_s, self._awake_since_s) > self.dead_after_s]


class Heartbeats:
    """The heartbeat connections of one node, by peer, opened by either side. Heartbeats are sent until ``stop``."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.connections: dict[str, Connection] = {}
        self._interval_s = timeouts.heartbeat_s
        self._liveness = Liveness(timeouts.heartbeat_s, timeouts.dead_after_s)
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to send a heartbeat on every open connection, again and again."""
        threading.Thread(target=self._send, name="heartbeats", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _send(self) -> None:
        while not self._stopped.wait(self._interval_s):
            for connection in list(self.connections.values()):
                connection.beat()

    def silent(self, others: Iterable[Connection], now_s: float) -> list[str]:
        """Peers from which nothing came for ``dead_after_s``, neither a heartbeat nor anything on ``others``."""
        open_ones = {peer: each for peer, each in self.connections.items() if not each.closed.done()}
        heard_at_s = {peer: each.heard_at_s for peer, each in open_ones.items()}
        for each in others:
            if each.peer in heard_at_s:
                heard_at_s[each.peer] = max(heard_at_s[each.peer], each.heard_at_s)
        return self._liveness.silent(heard_at_s, now_s)
