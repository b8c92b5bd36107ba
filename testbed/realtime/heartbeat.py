"""Finds out which peers are alive.

Every node keeps one heartbeat connection to the run's *monitor* (the scheduler's node). Both ends send a frame on it
every ``heartbeat_s``, from a separate thread, so a node with a busy event loop counts as alive. Thus n nodes need n
connections and not n², and a heartbeat never waits behind megabytes of bulk data. A crash is detected sooner, by the
end of a connection. Neither shows a failing path between two other nodes: there, TCP_USER_TIMEOUT ends the connection,
or a wait passes its deadline.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from testbed.errors import NodeLost
from testbed.realtime.connection import Connection
from testbed.settings.run import Timeouts


class PeerLost(NodeLost):
    """``node`` has lost ``peer``, usually because the process of ``peer`` has ended."""

    def __init__(self, node: str, peer: str, cause: str) -> None:
        self.node = node
        self.peer = peer
        self.cause = cause
        super().__init__(f"{node} lost {peer}: {cause}")


@dataclass(slots=True)
class Liveness:
    """Finds silent peers. The caller gives all times, in seconds on one clock.

    ``interval_s``: time between two calls of ``silent``. ``dead_after_s``: a peer is lost after a longer silence.
    """

    interval_s: float
    dead_after_s: float
    _asked_at_s: float | None = field(default=None)
    _awake_since_s: float = field(default=0.0)

    def silent(self, heard_at_s: dict[str, float], now_s: float) -> list[str]:
        """Return the peers that have been silent for too long.

        If this node itself was stopped or starved of processor time, it has not read its peers' heartbeats yet. Then no
        peer counts as silent until ``dead_after_s`` after this node came back.
        """
        if self._asked_at_s is not None and now_s - self._asked_at_s > 2 * self.interval_s:
            self._awake_since_s = now_s
        self._asked_at_s = now_s
        return [peer for peer, at_s in heard_at_s.items() if now_s - max(at_s, self._awake_since_s) > self.dead_after_s]


class Heartbeats:
    """The heartbeat connections of one node, by peer, opened by either side. Sends heartbeats until ``stop``."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.connections: dict[str, Connection] = {}
        self._interval_s = timeouts.heartbeat_s
        self._liveness = Liveness(timeouts.heartbeat_s, timeouts.dead_after_s)
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to send heartbeats on every open connection, from a separate thread."""
        threading.Thread(target=self._send, name="heartbeats", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _send(self) -> None:
        while not self._stopped.wait(self._interval_s):
            for connection in list(self.connections.values()):
                connection.beat()

    def silent(self, others: Iterable[Connection], now_s: float) -> list[str]:
        """Return the peers that have sent nothing for ``dead_after_s``, neither heartbeats nor data on ``others``."""
        open_ones = {peer: each for peer, each in self.connections.items() if not each.closed.done()}
        heard_at_s = {peer: each.heard_at_s for peer, each in open_ones.items()}
        for each in others:
            if each.peer in heard_at_s:
                heard_at_s[each.peer] = max(heard_at_s[each.peer], each.heard_at_s)
        return self._liveness.silent(heard_at_s, now_s)
