"""The receiving end of a TCP connection: order, acknowledgements at once and delayed ones.

Linux acknowledges at once when more than one full segment has not been acknowledged (RFC 1122, 4.2.3.2), when a segment
is pushed and the program has read all (``tcp_cleanup_rbuf``), the first segments of a connection and of a burst after
silence (quick acknowledgements), what arrives out of order, what fills a gap, and what had arrived before (RFC 5681,
4.2). Else after 40 ms. From the fourth one of a gap on, acknowledgements of what is out of order are gathered for 1 ms,
or 5/4 of a third of the round-trip time if that is less (``tcp_comp_sack_delay_ns``). Programs read at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.packets.link import PacketPath
from testbed.simulation.packets.segment import HEADER_BYTES, SEGMENT_BYTES, Acknowledgement, TcpSegment

_SELECTIVE_BYTES = 12  # of the option that acknowledges one block beyond a gap (RFC 2018)
_DELAY_S = 0.04  # TCP_DELACK_MIN
_QUICK = 16  # TCP_MAX_QUICKACKS
_AT_ONCE = 3  # acknowledgements of one gap that are not gathered (TCP_FASTRETRANS_THRESH)
_GATHERED_S = 1e-3  # tcp_comp_sack_delay_ns
_GATHERED_SHARE = 1.25 * 0.33  # of the round-trip time (tcp_comp_sack_rtt_percent)
_GATHERED = 44  # tcp_comp_sack_nr


class TcpReceiver:
    """``acknowledge(Acknowledgement)`` is called at the sender. ``deliver(message)``: when all before has arrived.

    beyond  numbers of the segments that arrived behind a gap, in the order of their arrival; the sender takes those out
            of which an acknowledgement has told it
    """

    __slots__ = (
        "_acknowledge", "_arrived_beyond", "_back", "_clock", "_deliver", "_echo_s", "_gathered", "_gathered_at",
        "_heard_s", "_next", "_of_gap", "_out_of_order", "_quick", "_rtt_s", "_timer_s", "_unacknowledged_bytes",
        "beyond",
    )  # fmt: skip

    def __init__(
        self,
        clock: Clock,
        back: PacketPath,
        acknowledge: Callable[[Acknowledgement], None],
        deliver: Callable[[Any], None],
        rtt_s: float,
    ) -> None:
        self._clock = clock
        self._back = back
        self._acknowledge = acknowledge
        self._deliver = deliver
        self._rtt_s = rtt_s
        self._next = 0
        self._out_of_order: dict[int, TcpSegment] = {}
        self.beyond: list[int] = []
        self._arrived_beyond = 0  # until now
        self._quick = _QUICK
        self._heard_s = clock.now
        self._unacknowledged_bytes = 0
        self._echo_s = math.inf  # when the first segment was sent that has not been acknowledged
        self._of_gap = 0  # acknowledgements sent since the gap moved
        self._gathered = 0
        self._gathered_at = -1
        self._timer_s = math.inf

    def arrive(self, arrival: tuple[TcpSegment, float]) -> None:
        """Take a segment, and when it was sent."""
        segment, sent_s = arrival
        number = segment.number
        now = self._clock.now
        if now - self._heard_s > self._rtt_s + 0.2:  # longer than the retransmission timeout
            self._quick = _QUICK
        self._heard_s = now
        if number == self._next:
            self._echo_s = min(self._echo_s, sent_s)
            self._take(segment)
        elif number > self._next and number not in self._out_of_order:
            self._out_of_order[number] = segment
            self.beyond.append(number)
            self._arrived_beyond += 1
            self._tell_of_gap()
        else:
            self._send(duplicate=True)

    def _take(self, segment: TcpSegment) -> None:
        """Take the one that was expected, and what had arrived behind it."""
        out_of_order = self._out_of_order
        fills = bool(self._out_of_order)
        pushed = segment.pushed
        following: TcpSegment | None = segment
        while following is not None:
            self._next += 1
            self._unacknowledged_bytes += following.size_bytes
            for message in following.messages:
                self._deliver(message)
            following = out_of_order.pop(self._next, None) if out_of_order else None
        if out_of_order:
            self._tell_of_gap()
        elif fills or self._quick or pushed or self._unacknowledged_bytes > SEGMENT_BYTES:
            self._send()
        else:
            self._send_after(_DELAY_S)

    def _tell_of_gap(self) -> None:
        if self._gathered_at != self._next:
            self._gathered_at = self._next
            self._of_gap = 0
        self._of_gap += 1
        if self._of_gap <= _AT_ONCE or self._gathered >= _GATHERED:
            self._send()
        else:
            self._gathered += 1
            self._send_after(min(_GATHERED_S, _GATHERED_SHARE * self._rtt_s))

    def _send_after(self, delay_s: float) -> None:
        at_s = self._clock.now + delay_s
        if at_s < self._timer_s:
            self._timer_s = at_s
            self._clock.at_background(at_s, self._on_timer)

    def _on_timer(self, _: Any) -> None:
        if self._clock.now == self._timer_s:
            self._send()

    def _send(self, duplicate: bool = False) -> None:
        self._timer_s = math.inf
        self._unacknowledged_bytes = 0
        self._gathered = 0
        self._quick = max(0, self._quick - 1)
        size_bytes = HEADER_BYTES + (_SELECTIVE_BYTES if self._out_of_order or duplicate else 0)
        acknowledgement = Acknowledgement(self._next, self._arrived_beyond, self._echo_s, duplicate)
        self._echo_s = math.inf
        self._back.send(size_bytes, self._acknowledge, acknowledgement)
