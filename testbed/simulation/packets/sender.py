"""The sending end of a TCP connection, segment by segment, as Linux sends with SACK, RACK, PRR and tail loss probes.

Loss detection  RACK (RFC 8985): what was sent before a segment that has arrived is lost after the RTT of that segment,
                and a fourth of the least RTT if fewer than three segments have arrived beyond a gap
Recovery        PRR (RFC 6937): what may be sent follows what is acknowledged, so that the window is β·W in the end
Tail            two RTTs after the last acknowledgement the last segment is sent again (RFC 8985, 7)
Timeout         all is taken for lost, and the window is one segment (RFC 5681, 3.1), unless a segment that was sent once
                is acknowledged: then it was spurious (F-RTO, RFC 5682)
Growth          only while the window limits the connection (RFC 7661; ``tcp_cwnd_validate``)

Not modelled: bursts of segmentation offload; the receiver's window, beyond a fixed limit; undoing by duplicates.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.packets.congestion import Cubic, Reno
from testbed.simulation.packets.link import PacketPath
from testbed.simulation.packets.receiver import TcpReceiver
from testbed.simulation.packets.segment import HEADER_BYTES, SEGMENT_BYTES, Acknowledgement, Segment
from testbed.simulation.packets.timers import TICK_S, RoundTripTimes, tick_after
from testbed.simulation.tcp_model import TcpModel

_DUPLICATES = 3  # segments beyond a gap after which it is a loss (RFC 5681, 3.2)


class State(IntEnum):
    """Of loss recovery: none, after lost segments, and after a timeout."""

    OPEN = 0
    RECOVERY = 1
    LOSS = 2


class TcpSender:
    """``on_room()`` is called when the window may have room for what is to be sent.

    unsent_bytes  written, and not sent yet
    window        congestion window in segments
    threshold     at which slow start ends, likewise
    """

    __slots__ = (
        "_again", "_clock", "_control", "_delivered", "_ends", "_high", "_idle", "_last_sent_s", "_limit", "_limited",
        "_limited_until", "_lost", "_model", "_most_out", "_next", "_path", "_prior_threshold", "_prior_window",
        "_probe_ends", "_rack", "_rack_rtt_s", "_receiver", "_recovered", "_reordering_at_s", "_resend_from", "_resent",
        "_round_trips", "_sacked", "_seen", "_segments", "_sent_again", "_sent_order", "_spurious", "_state", "_timer_s",
        "_timer_set_s", "_una", "_window_used", "_window_used_s", "arrive", "now_s", "on_room", "threshold",
        "unsent_bytes", "window",
    )  # fmt: skip

    def __init__(self, clock: Clock, path: PacketPath, model: TcpModel, rtt_s: float) -> None:
        self._clock, self._path, self._model = clock, path, model
        self._control = Reno() if model.congestion_control == "reno" else Cubic()
        self._round_trips = RoundTripTimes(rtt_s)
        self.now_s = clock.now
        self.window = int(model.initial_window_bytes / SEGMENT_BYTES)
        self.threshold: float = math.inf
        self._control.sampled(self, rtt_s, 0, 0)
        self.unsent_bytes = 0
        self._ends: deque[list[Any]] = deque()  # [bytes of the unsent stream up to its end, message]
        self._segments: dict[int, Segment] = {}  # under way, by number
        self._una = self._next = 0  # the first that is not acknowledged; the next new one
        self._sacked = self._lost = self._again = 0  # segments under way that are so
        self._sent_order: deque[tuple[float, Segment]] = deque()
        self._rack, self._rack_rtt_s = (-math.inf, -1), rtt_s  # the segment sent last of those that have arrived
        self._resend_from = 0  # no segment before is to be sent again
        self._seen = 0  # of the receiver's list of what arrived beyond gaps
        self._state, self._high = State.OPEN, 0  # recovery ends when all before ``_high`` is acknowledged
        self._prior_window, self._recovered, self._resent = 0, 0, 0  # of PRR
        self._prior_threshold: float = math.inf
        self._spurious = False  # a timeout may have been
        self._probe_ends, self._sent_again = -1, False  # of a tail loss probe
        self._limited, self._most_out, self._limited_until = False, 0, 0
        self._window_used, self._window_used_s = 0, clock.now
        self._last_sent_s = clock.now
        self._limit = math.inf if math.isinf(model.window_limit_bytes) else model.window_limit_bytes / SEGMENT_BYTES
        self._timer_s = self._timer_set_s = math.inf
        self._reordering_at_s = math.inf
        self._idle = True
        self.on_room: Callable[[], None] = self.push

    def connect(self, receiver: TcpReceiver) -> None:
        """Send to ``receiver``."""
        self._receiver, self.arrive = receiver, receiver.arrive

    # ---- what congestion control asks for -----------------------------------------------------------------------

    @property
    def least_rtt_s(self) -> float:
        return self._round_trips.least_s

    @property
    def pacing_bytes_per_s(self) -> float:
        """Linux' estimate of the rate, doubled in slow start (``tcp_update_pacing_rate``)."""
        factor = 2.0 if self.window < self.threshold / 2 else 1.2
        return factor * max(self.window, self._next - self._una) * SEGMENT_BYTES / self._round_trips.smoothed_s

    # ---- sending ------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether all that was written has been acknowledged."""
        return self._una == self._next and not self.unsent_bytes

    @property
    def _in_flight(self) -> int:
        return self._next - self._una - self._sacked - self._lost + self._again

    def write(self, size_bytes: int, message: Any = None) -> None:
        """Append bytes to what is to be sent. With ``message``: it ends there."""
        if self._model.slow_start_after_idle and self._next == self._una and not self.unsent_bytes:
            self._shrink_after_idle()
        self.unsent_bytes += size_bytes
        if message is not None:
            self._ends.append([self.unsent_bytes, message])

    def push(self, more: bool = False) -> None:
        """Send what the window allows. ``more``: only full segments, as more is being written."""
        sent, window, limited = 0, self.window, False
        while self.unsent_bytes >= (SEGMENT_BYTES if more else 1):
            if self._in_flight >= window or self._next - self._una >= self._limit:
                limited = self._in_flight >= window
                break
            self._send_new()
            sent += 1
        if sent or limited:
            self._validate(limited or self._in_flight >= window)
        if sent:
            if self._state is State.RECOVERY:
                self._resent += sent
            self._set_timer(after_sending=True)

    def _send_new(self) -> None:
        size_bytes, messages, ends = min(self.unsent_bytes, SEGMENT_BYTES), [], self._ends
        self.unsent_bytes -= size_bytes
        while ends and ends[0][0] <= size_bytes:
            messages.append(ends.popleft()[1])
        for end in ends:
            end[0] -= size_bytes
        segment = Segment(self._next, size_bytes, not self.unsent_bytes, messages)
        now = self._clock.now
        if self._in_flight == 0 and now > self._last_sent_s:
            self._control.resumed(now, now - self._last_sent_s)
        self._segments[self._next] = segment
        self._next += 1
        self._transmit(segment)

    def _transmit(self, segment: Segment) -> None:
        segment.sent_s = self._last_sent_s = self._clock.now
        self._sent_order.append((segment.sent_s, segment))
        self._path.send(segment.size_bytes + HEADER_BYTES, self.arrive, segment)

    def _transmit_again(self, segment: Segment) -> None:
        if segment.lost and not segment.again:
            segment.again = True
            self._again += 1
        segment.resent = True
        self._transmit(segment)

    def _resend_lost(self) -> None:
        """Send again what is lost, as far as the window allows."""
        number, sent = self._resend_from, 0
        while self._again < self._lost and self._in_flight < self.window and number < self._next:
            segment = self._segments.get(number)
            if segment is not None and segment.lost and not segment.again:
                self._transmit_again(segment)
                sent += 1
            number += 1
        self._resend_from = number
        if sent and self._state is State.RECOVERY:
            self._resent += sent

    def _validate(self, limited: bool) -> None:
        """Take note of whether the window limits the connection."""
        out = self._next - self._una
        if self._una >= self._limited_until or limited or (not self._limited and out > self._most_out):
            self._limited, self._most_out, self._limited_until = limited, out, self._next
        if self._is_limited:
            self._window_used, self._window_used_s = 0, self._clock.now
            return
        self._window_used = max(self._window_used, out)
        idle_s = self._clock.now - self._window_used_s
        if self._model.slow_start_after_idle and idle_s >= self._round_trips.timeout_s:
            self._shrink_unused()

    @property
    def _is_limited(self) -> bool:
        return self._limited or (self.window < self.threshold and self.window < 2 * self._most_out)

    def _shrink_unused(self) -> None:
        """Of a window of which only a part was used for a timeout, half of the rest is kept (RFC 2861)."""
        used = max(self._window_used, int(self._model.initial_window_bytes / SEGMENT_BYTES))
        if self._state is State.OPEN and used < self.window:
            self.threshold = self._present_threshold()
            self.window = (self.window + used) // 2
        self._window_used, self._window_used_s = 0, self._clock.now

    def _shrink_after_idle(self) -> None:
        """Halve the window for each timeout in which nothing was sent (RFC 2861; ``tcp_cwnd_restart``)."""
        timeout_s, idle_s = self._round_trips.timeout_s, self._clock.now - self._last_sent_s
        if idle_s <= timeout_s:
            return
        self.threshold = self._present_threshold()
        least = min(int(self._model.initial_window_bytes / SEGMENT_BYTES), self.window)
        idle_s -= timeout_s
        while idle_s > 0 and self.window > least:
            self.window //= 2
            idle_s -= timeout_s
        self.window = max(self.window, least)
        self._window_used, self._window_used_s = 0, self._clock.now

    def _present_threshold(self) -> float:
        if self._state is State.RECOVERY:
            return self.threshold
        return max(self.threshold, self.window // 2 + self.window // 4)

    # ---- acknowledgements ---------------------------------------------------------------------------------------

    def acknowledged(self, acknowledgement: Acknowledgement) -> None:
        """Take an acknowledgement."""
        now = self.now_s = self._clock.now
        prior_una, prior_lost = self._una, self._lost
        once = False  # a segment that was sent only once before a timeout has arrived
        delivered, advanced = 0, acknowledgement.next_number > prior_una
        oldest_s = latest_s = -1.0
        for number in self._newly_acknowledged(acknowledgement):
            segment = self._segments[number] if number >= acknowledgement.next_number else self._segments.pop(number)
            if segment.again:
                self._again -= 1
            elif not segment.sacked and not segment.resent:
                latest_s = segment.sent_s
                oldest_s = latest_s if oldest_s < 0 else oldest_s
                once = once or number < self._high
            if segment.sacked:
                self._sacked -= 1
                continue
            delivered += 1
            if segment.lost:
                self._lost -= 1
            segment.lost = segment.again = False
            self._arrived(segment, now)
            if number >= acknowledgement.next_number:
                segment.sacked = True
                self._sacked += 1
        self._una = max(prior_una, acknowledgement.next_number)
        self._resend_from = max(self._resend_from, self._una)
        if oldest_s >= 0:
            self._round_trips.observe(now - oldest_s, self._una, self._next)
            self._control.sampled(self, now - latest_s, self._una, self._next)
        if self._probe_ends >= 0 and acknowledgement.next_number >= self._probe_ends:
            self._probe_answered(acknowledgement)
        dubious = not delivered or self._sacked or self._lost or self._state is not State.OPEN
        if dubious:
            self._recover(advanced, once)
        if delivered:
            self._set_timer()
        if self._state is State.RECOVERY:
            self._reduce(delivered, self._lost > prior_lost, advanced)
        elif advanced and self._is_limited:
            self._control.acknowledged(self, delivered)
        if self._lost > self._again:
            self._resend_lost()
        self.on_room()

    def _newly_acknowledged(self, acknowledgement: Acknowledgement) -> list[int]:
        numbers = list(range(self._una, acknowledgement.next_number))
        if self._seen < acknowledgement.beyond:
            beyond = self._receiver.beyond[self._seen : acknowledgement.beyond]
            self._seen = acknowledgement.beyond
            numbers += [number for number in beyond if number >= acknowledgement.next_number]
        return numbers

    def _arrived(self, segment: Segment, now: float) -> None:
        """Let RACK know that a segment has arrived."""
        rtt_s = now - segment.sent_s
        if segment.resent and rtt_s < self._round_trips.least_s:
            return  # of the first time that it was sent
        self._rack_rtt_s = rtt_s
        self._rack = max(self._rack, (segment.sent_s, segment.number))

    def _mark_lost(self) -> None:
        """RACK: mark what was sent before a segment that has arrived, and has not arrived in time."""
        settle_s = 0.0
        if self._state not in (State.RECOVERY, State.LOSS) and self._sacked < _DUPLICATES:
            settle_s = min(self._round_trips.least_s / 4, self._round_trips.smoothed_s)
        order, now = self._sent_order, self._clock.now
        self._reordering_at_s = math.inf
        while order:
            sent_s, segment = order[0]
            current = segment.sent_s == sent_s and segment.number >= self._una and not segment.sacked
            if current and not (segment.lost and not segment.again):
                if (sent_s, segment.number) >= self._rack:
                    break
                if sent_s + self._rack_rtt_s + settle_s > now + 1e-9:
                    self._reordering_at_s = self._rack[0] + self._rack_rtt_s + settle_s
                    break
                self._lose(segment)
            order.popleft()

    def _lose(self, segment: Segment) -> None:
        if segment.again:
            segment.again = False
            self._again -= 1
        elif not segment.lost:
            segment.lost = True
            self._lost += 1
        self._resend_from = min(self._resend_from, segment.number)

    # ---- recovery -----------------------------------------------------------------------------------------------

    def _recover(self, advanced: bool, once: bool) -> None:
        if self._state is not State.OPEN and self._una >= self._high:
            if self._state is State.RECOVERY:
                self.window = int(self.threshold)
            self._state = State.OPEN
        elif self._state is State.LOSS and self._spurious and once:
            self._undo()
        self._mark_lost()
        if self._lost and self._state is State.OPEN:
            self._begin_recovery()

    def _begin_recovery(self) -> None:
        self._state, self._high, self._probe_ends = State.RECOVERY, self._next, -1
        self._prior_window, self._recovered, self._resent = self.window, 0, 0
        self.threshold = self._control.reduced(self)

    def _reduce(self, delivered: int, loses: bool, advanced: bool) -> None:
        """PRR: let the window follow what is delivered."""
        if delivered <= 0:
            return
        in_flight = self._in_flight
        self._recovered += delivered
        missing = int(self.threshold) - in_flight
        if missing < 0:
            send = -(-int(self.threshold) * self._recovered // self._prior_window) - self._resent
        else:
            send = max(self._recovered - self._resent, delivered) + (1 if advanced and not loses else 0)
            send = min(missing, send)
        self.window = in_flight + max(send, 0 if self._resent else 1)

    def _probe_answered(self, acknowledgement: Acknowledgement) -> None:
        if not self._sent_again or acknowledgement.duplicate:
            self._probe_ends = -1
        elif acknowledgement.next_number > self._probe_ends:  # the probe has repaired a loss
            self._probe_ends = -1
            self.threshold = self._control.reduced(self)
            self.window = int(self.threshold)

    # ---- timers -------------------------------------------------------------------------------------------------

    def _set_timer(self, after_sending: bool = False) -> None:
        if self._una == self._next:
            self._timer_s = self._reordering_at_s = math.inf
            return
        now = self._clock.now
        if after_sending and self._timer_s < math.inf and self._state is not State.OPEN:
            return  # that of the oldest segment runs
        at_s = (self._segments[self._una].sent_s if after_sending else now) + self._round_trips.timeout_s
        if self._state is State.OPEN and self._probe_ends < 0:
            at_s = min(at_s, now + self._round_trips.probe_s(self._next - self._una == 1))
        self._timer_s = tick_after(at_s)
        self._wake()

    def _wake(self) -> None:
        at_s = min(self._timer_s, self._reordering_at_s)
        if at_s < self._timer_set_s:
            self._timer_set_s = at_s
            self._clock.at_background(at_s, self._on_timer)

    def _on_timer(self, _: Any) -> None:
        now = self._clock.now
        if now != self._timer_set_s:
            return
        self._timer_set_s = math.inf
        self.now_s = now
        if self._reordering_at_s <= now:
            self._reordering_at_s = math.inf
            self._mark_lost()
            if self._lost and self._state is State.OPEN:
                self._begin_recovery()
                self._reduce(1, True, False)
            self._resend_lost()
            self.on_room()
        elif self._timer_s <= now and self._una < self._next:
            if self._state is State.OPEN and self._probe_ends < 0:
                self._probe()
            else:
                self._time_out()
        if min(self._timer_s, self._reordering_at_s) < math.inf:
            self._wake()

    def _probe(self) -> None:
        """Send new data, or the last segment again, as no acknowledgement has come for two round trips."""
        if self.unsent_bytes and self._next - self._una < self._limit:
            self._sent_again = False
            self._send_new()
        else:
            self._sent_again = True
            self._transmit_again(self._segments[self._next - 1])
        self._probe_ends = self._next
        self._timer_s = tick_after(self._clock.now + self._round_trips.timeout_s)

    def _time_out(self) -> None:
        """Take all that is under way for lost, and begin anew with one segment."""
        again = self._state is State.LOSS
        if not again or self._high <= self._una:
            self._prior_window, self._prior_threshold = self.window, self._present_threshold()
            self.threshold = self._control.reduced(self)
            self._spurious = self._state is not State.RECOVERY
        for number in range(self._una, self._next):
            segment = self._segments[number]
            recent = number > self._una and segment.sent_s + self._rack_rtt_s > self._clock.now
            if not segment.sacked and not recent:
                self._lose(segment)
        self._control.timed_out(self, self._next)
        self._state, self._high, self._probe_ends = State.LOSS, self._next, -1
        self.window = self._in_flight + 1
        self._resend_from = self._una
        self._round_trips.back_off()
        self._resend_lost()
        self._timer_s = tick_after(self._clock.now + self._round_trips.timeout_s)

    def _undo(self) -> None:
        """The timeout was spurious: nothing was lost."""
        for segment in self._segments.values():
            if segment.lost:
                segment.lost = segment.again = False
        self._lost = self._again = 0
        self.window, self.threshold = max(self.window, self._prior_window), self._prior_threshold
        self._state, self._spurious = State.OPEN, False
