"""What a TCP sender has under way: which segments have arrived, and which are taken for lost (RACK: RFC 8985).

A segment is lost if one that was sent later has arrived, and it has not within the round-trip time of that one, and
the time that reordering is allowed.
"""

from __future__ import annotations

import math
from collections import deque
from operator import itemgetter
from typing import NamedTuple

from testbed.simulation.packets.delivery_rate import DeliveryRate
from testbed.simulation.packets.segment import Acknowledgement, TcpSegment

_ROUNDING_S = 1e-9


class Delivered(NamedTuple):
    """What an acknowledgement tells.

    segments  that have arrived since the one before
    advanced  whether the first one that was missing is among them
    oldest_s, latest_s  when the first and the last of those were sent that were sent once only. If there are none, by
                        the timestamp, if it advanced (RFC 7323, 4.1; Linux: ``tcp_ack_update_rtt``); NaN: no sample
    """

    segments: int
    advanced: bool
    oldest_s: float
    latest_s: float


class Scoreboard:
    """``first``: the number of the first segment that is not acknowledged. ``following``: of the next new one.

    sacked, lost, again  how many are acknowledged beyond a gap, are lost, and of these have been sent again
    marked               how often one was marked as lost
    delivery             takes note of what is sent and arrives
    """

    __slots__ = (
        "_beyond", "_latest", "_latest_rtt_s", "_look_from", "_order", "_seen", "_segments", "again", "delivery",
        "first", "following", "lost", "marked", "sacked",
    )  # fmt: skip

    def __init__(self, beyond: list[int], delivery: DeliveryRate | None) -> None:
        # arrivals beyond gaps that are not known yet, and how many are known
        self._beyond = beyond
        self._seen = 0
        self._segments: dict[int, TcpSegment] = {}
        self._order: deque[tuple[float, TcpSegment]] = deque()  # by the time of sending
        # of those that have arrived, the one sent last
        self._latest = (-math.inf, -1)
        self._latest_rtt_s = 0.0
        self._look_from = 0  # no segment before is to be sent again
        self.first = self.following = 0
        self.sacked = self.lost = self.again = self.marked = 0
        self.delivery = delivery

    @property
    def out(self) -> int:
        """How many segments have not been acknowledged in order."""
        return self.following - self.first

    @property
    def in_flight(self) -> int:
        """How many segments are taken to be on their way."""
        return self.following - self.first - self.sacked - self.lost + self.again

    @property
    def oldest(self) -> TcpSegment:
        """The first one that is not acknowledged."""
        return self._segments[self.first]

    @property
    def newest(self) -> TcpSegment:
        """The last one that was sent for the first time."""
        return self._segments[self.following - 1]

    def add(self, segment: TcpSegment, now_s: float) -> None:
        self.sent(segment, now_s)
        self._segments[segment.number] = segment
        self.following += 1

    def sent(self, segment: TcpSegment, now_s: float) -> None:
        if self.delivery is not None:
            self.delivery.sent(segment, now_s, self.out)
        segment.sent_s = now_s
        self._order.append((now_s, segment))

    def resent(self, segment: TcpSegment, now_s: float) -> None:
        if segment.lost and not segment.again:
            segment.again = True
            self.again += 1
        segment.resent = True
        self.sent(segment, now_s)

    def acknowledge(self, acknowledgement: Acknowledgement, now_s: float, least_rtt_s: float) -> Delivered:
        first = self.first
        following = acknowledgement.next_number
        delivered = 0
        oldest_s = math.nan
        latest_s = math.nan
        for number in (*range(first, following), *self._newly_beyond(acknowledgement)):
            segment = self._segments.pop(number) if number < following else self._segments[number]
            if segment.again:
                segment.again = False
                self.again -= 1
            elif not segment.sacked and not segment.resent:
                latest_s = segment.sent_s
                if not delivered or math.isnan(oldest_s):
                    oldest_s = latest_s
            if segment.lost:
                segment.lost = False
                self.lost -= 1
            if segment.sacked:
                self.sacked -= 1
                continue
            delivered += 1
            if self.delivery is not None:
                self.delivery.arrived(segment)
            self._arrived(segment, now_s, least_rtt_s)
            if number >= following:
                segment.sacked = True
                self.sacked += 1
        self.first = max(first, following)
        self._look_from = max(self._look_from, self.first)
        if following > first and math.isnan(latest_s) and acknowledgement.echo_s < math.inf:
            oldest_s = latest_s = acknowledgement.echo_s
        self._forget_arrived()
        return Delivered(delivered, following > first, oldest_s, latest_s)

    def _newly_beyond(self, acknowledgement: Acknowledgement) -> list[int]:
        if self._seen >= acknowledgement.beyond:
            return []
        new = acknowledgement.beyond - self._seen
        beyond = self._beyond[:new]
        del self._beyond[:new]
        self._seen = acknowledgement.beyond
        return [number for number in beyond if number >= max(self.first, acknowledgement.next_number)]

    def _arrived(self, segment: TcpSegment, now_s: float, least_rtt_s: float) -> None:
        rtt_s = now_s - segment.sent_s
        if segment.resent and rtt_s < least_rtt_s:
            return  # what arrived is what was sent first
        self._latest_rtt_s = rtt_s
        self._latest = max(self._latest, (segment.sent_s, segment.number))

    def _forget_arrived(self) -> None:
        """Keep no segment of which nothing is to be found out: its messages would stay in memory, too."""
        order = self._order
        first = self.first
        while order:
            sent_s, segment = order[0]
            if segment.number >= first and segment.sent_s == sent_s and not segment.sacked:
                return
            order.popleft()

    def find_lost(self, now_s: float, settle_s: float) -> float:
        """Mark what is lost by now. ``settle_s``: the time that reordering is allowed.

        Return when to look again; infinite if nothing would be lost then.
        """
        order = self._order
        while order:
            sent_s, segment = order[0]
            current = segment.sent_s == sent_s and segment.number >= self.first and not segment.sacked
            if current and not (segment.lost and not segment.again):
                if (sent_s, segment.number) >= self._latest:
                    return math.inf
                if sent_s + self._latest_rtt_s + settle_s > now_s + _ROUNDING_S:
                    return self._latest[0] + self._latest_rtt_s + settle_s
                self._lose(segment)
            order.popleft()
        return math.inf

    def lose_all(self, now_s: float) -> None:
        """Take all for lost but what was sent within the last round-trip time, and the first one in any case."""
        for segment in self._segments.values():
            recent = segment.number > self.first and segment.sent_s + self._latest_rtt_s > now_s
            if not segment.sacked and not recent:
                self._lose(segment)

    def _lose(self, segment: TcpSegment) -> None:
        if segment.again:
            segment.again = False
            self.again -= 1
            self.marked += 1
        elif not segment.lost:
            segment.lost = True
            self.lost += 1
            self.marked += 1
        self._look_from = min(self._look_from, segment.number)

    def none_lost(self) -> None:
        """Take nothing for lost any more, and look again at what ``find_lost`` has dropped."""
        for segment in self._segments.values():
            segment.lost = segment.again = False
        self.lost = self.again = 0
        out = ((segment.sent_s, segment) for segment in self._segments.values() if not segment.sacked)
        self._order = deque(sorted(out, key=itemgetter(0)))

    def next_lost(self) -> TcpSegment | None:
        """Return the first segment that is lost and has not been sent again."""
        while self._look_from < self.following:
            segment = self._segments.get(self._look_from)
            if segment is not None and segment.lost and not segment.again:
                return segment
            self._look_from += 1
        return None
