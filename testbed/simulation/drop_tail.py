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
from typing import Any, Protocol

from testbed.simulation.clock import Clock


class BurstSender(Protocol):
    """A connection, as the queue sees it. All sizes are of all connections that it stands for."""

    burst_room_bytes: float

    def queued_flight_bytes(self) -> float: ...
    def lose(self, share: float) -> None: ...


class DropTailQueue:
    """The connections that send over one link. Bursts are settled at the end of the instant at which they begin."""

    __slots__ = ("_bursts", "_clock", "_senders")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._senders: dict[BurstSender, None] = {}
        self._bursts: dict[BurstSender, None] = {}

    def burst(self, sender: BurstSender) -> None:
        """``sender`` begins to send after idle time, at this instant."""
        if not self._bursts:
            self._clock.at_end_of_instant(self._settle)
        self._bursts[sender] = self._senders[sender] = None

    def leave(self, sender: BurstSender) -> None:
        """``sender`` has nothing left to send."""
        self._senders.pop(sender, None)

    def _settle(self, _: Any) -> None:
        bursts, self._bursts = self._bursts, {}
        burst_bytes, room_bytes = 0.0, math.inf
        for each in bursts:
            burst_bytes += each.queued_flight_bytes()
            room_bytes = min(room_bytes, each.burst_room_bytes)
        if len(self._senders) > len(bursts):
            room_bytes -= sum(each.queued_flight_bytes() for each in self._senders if each not in bursts)
        if burst_bytes > room_bytes:
            for each in bursts:
                each.lose(1 - max(room_bytes, 0.0) / burst_bytes)
