"""The queue before a WAN link, which drops what does not fit: overflow by the unpaced bursts of loss-based connections.

Notation: C capacity of the link, Q its queue, A the rate at which bursts reach it, W a congestion window.

flight   what a connection has under way at most: W, or what is left to send if that is less
queued   the part of a flight that waits here: the flight less what has been delivered in the last round trip
burst    after idle time a connection sends its whole flight at rate A. Q / (1 - C/A) of what is queued then pass, as
         the queue drains meanwhile, and first what others had queued before. The rest is lost, by the bursts of one
         instant in proportion to what each has queued: connections that are answered together send together

A path has such a queue before every link that is narrower than all before it. What one drops does not reach the next.

A connection learns of its loss a round trip later, and sends again what was lost (``CongestionWindow.lost``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from testbed.simulation.clock import Clock


class BurstSender(Protocol):
    """A connection, as the queue sees it. All sizes are of all connections that it stands for."""

    def queued_flight_bytes(self) -> float: ...
    def lose(self, share: float, at: BurstQueue) -> None: ...


@dataclass(slots=True, eq=False)
class BurstQueue:
    """A connection at the queue before one of its links, which is narrower than all links before that.

    capacity          C, of the link (payload bytes per second)
    burst_room_bytes  of an unpaced burst: what the queue takes while it drains, Q / (1 - C / A)
    late_share        C / A: what gets into the full queue
    """

    connection: BurstSender
    drop_tail: DropTailQueue
    capacity: float
    burst_room_bytes: float
    late_share: float


class DropTailQueue:
    """The connections that send over one link. Bursts are settled at the end of the instant at which they begin."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._senders: dict[BurstQueue, None] = {}
        self._bursts: dict[BurstQueue, None] = {}

    def burst(self, sender: BurstQueue) -> None:
        """``sender`` begins to send after idle time, at this instant."""
        if not self._bursts:
            self._clock.at_end_of_instant(self._settle)
        self._bursts[sender] = self._senders[sender] = None

    def leave(self, sender: BurstQueue) -> None:
        """``sender`` has nothing left to send."""
        self._senders.pop(sender, None)

    def _settle(self, _: Any) -> None:
        bursts, self._bursts = self._bursts, {}
        burst_bytes, room_bytes = 0.0, math.inf
        for each in bursts:
            burst_bytes += each.connection.queued_flight_bytes()
            room_bytes = min(room_bytes, each.burst_room_bytes)
        if len(self._senders) > len(bursts):
            room_bytes -= sum(each.connection.queued_flight_bytes() for each in self._senders if each not in bursts)
        if burst_bytes > room_bytes:
            for each in bursts:
                each.connection.lose(1 - max(room_bytes, 0.0) / burst_bytes, each)
