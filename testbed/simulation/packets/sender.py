"""The sending end of a TCP connection, segment by segment, as Linux sends with SACK, RACK, PRR and tail loss probes.

Recovery  PRR (RFC 6937): what may be sent follows what is acknowledged, so that the window is β·W in the end
Tail      two RTTs after the last acknowledgement the last segment is sent again (RFC 8985, 7)
Timeout   all is taken for lost, and the window is one segment (RFC 5681, 3.1)
Undo      if what is acknowledged in order was sent before the loss was noted, nothing was lost (Eifel detection by
          timestamps, RFC 3522), and the window is what it was
Growth    only while the window limits the connection (RFC 7661; Linux: ``tcp_cwnd_validate``)
Host      no more of a connection waits at the node's port than two bursts, or what the estimated rate sends in 1 ms
          (``HostQueue``), so that what is written meanwhile fills the last segment

Not modelled: bursts of segmentation offload without pacing; a receiver's window that grows; undoing by duplicates.
``paced_sender`` has what differs with BBR.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

from testbed.simulation.clock import Clock
from testbed.simulation.packets.bbr import Bbr
from testbed.simulation.packets.congestion import Reno
from testbed.simulation.packets.delivery_rate import DeliveryRate
from testbed.simulation.packets.link import HostQueue, PacketPath
from testbed.simulation.packets.receiver import TcpReceiver
from testbed.simulation.packets.scoreboard import Delivered, Scoreboard
from testbed.simulation.packets.segment import HEADER_BYTES, SEGMENT_BYTES, Acknowledgement, TcpSegment, take_messages
from testbed.simulation.packets.timers import RoundTripTimes, tick_after
from testbed.simulation.tcp_model import LEAST_RTT_S, TcpModel

_DUPLICATES = 3  # segments beyond a gap after which it is a loss (RFC 5681, 3.2)
_HOST_S = 1 / 1024  # sk_pacing_shift
_HOST_BURSTS = 2


class RecoveryState(IntEnum):
    """Of loss recovery: none, after lost segments, and after a timeout."""

    OPEN = 0
    RECOVERY = 1
    LOSS = 2


class Prior(NamedTuple):
    """Before an acknowledgement: segments that are lost, that have ever been marked as lost, and in flight."""

    lost: int
    marked: int
    in_flight: int


class TcpSender:
    """``on_room()`` is called when the window may have room for what is to be sent.

    unsent_bytes  written, and not sent yet
    window        congestion window in segments
    threshold     at which slow start ends, likewise
    now_s         of the present acknowledgement
    """

    __slots__ = (
        "_clock", "_control", "_ends", "_first_window", "_high", "_host_queue", "_last_sent_s", "_limit", "_limited",
        "_limited_until", "_most_out", "_noted_s", "_prior_threshold", "_prior_window", "_probe_ends", "_probe_resent",
        "_receive", "_recovered", "_reordering_at_s", "_resent", "_restarts", "_round_trips", "_scoreboard", "_state",
        "_timer_s", "_wakes_s", "_window_used", "_window_used_s", "now_s", "on_room", "threshold", "unsent_bytes",
        "window",
    )  # fmt: skip

    def __init__(self, clock: Clock, path: PacketPath, model: TcpModel, rtt_s: float, control: Reno | Bbr) -> None:
        self._clock = clock
        self._control = control
        self._host_queue = HostQueue(clock, path)
        self._restarts = model.slow_start_after_idle
        self._round_trips = RoundTripTimes(rtt_s)
        self.now_s = self._last_sent_s = clock.now
        self.window = self._first_window = int(model.initial_window_bytes / SEGMENT_BYTES)
        self.threshold = math.inf
        self._limit = model.window_limit_bytes / SEGMENT_BYTES
        self.unsent_bytes = 0
        self._ends: deque[list[Any]] = deque()  # [bytes of the unsent stream up to its end, message]
        # until all before ``_high`` is acknowledged
        self._state = RecoveryState.OPEN
        self._high = 0
        # of PRR
        self._prior_window = 0
        self._recovered = 0
        self._resent = 0
        self._prior_threshold = math.inf
        self._noted_s = -math.inf  # when the present loss was noted
        # of a tail loss probe; negative: none is under way
        self._probe_ends = -1
        self._probe_resent = False
        self._limited = False
        self._most_out = 0
        self._limited_until = 0
        self._window_used = 0
        self._window_used_s = clock.now
        self._timer_s = self._reordering_at_s = self._wakes_s = math.inf
        self.on_room: Callable[[], None] = self.push

    def connect(self, receiver: TcpReceiver, delivery: DeliveryRate | None = None) -> None:
        """Send to ``receiver``. ``delivery`` takes note of what is sent and arrives."""
        self._receive, self._scoreboard = receiver.arrive, Scoreboard(receiver.beyond, delivery)
        self._control.sampled(self, self._round_trips.smoothed_s, 0, 0)  # HyStart asks for the pacing rate

    @property
    def idle(self) -> bool:
        """Whether all that was written has been acknowledged."""
        return not self._scoreboard.out and not self.unsent_bytes

    @property
    def gave_up(self) -> bool:
        """Whether nothing is sent any more, as too many timeouts have expired."""
        return self._round_trips.hopeless

    @property
    def in_flight(self) -> int:
        return self._scoreboard.in_flight

    @property
    def pacing_bytes_per_s(self) -> float:
        """Linux' estimate of the rate, doubled in slow start (``tcp_update_pacing_rate``)."""
        factor = 2.0 if self.window < self.threshold / 2 else 1.2
        rtt_s = max(self._round_trips.smoothed_s, LEAST_RTT_S)
        return factor * max(self.window, self._scoreboard.out) * SEGMENT_BYTES / rtt_s

    # ---- sending ------------------------------------------------------------------------------------------------

    def write(self, size_bytes: int, message: Any = None) -> None:
        """Append bytes to what is to be sent. With ``message``: it ends there."""
        if self._restarts and self.idle:
            self._shrink_after_idle()
        self.unsent_bytes += size_bytes
        if message is not None:
            self._ends.append([self.unsent_bytes, message])

    def push(self, more: bool = False) -> None:
        """Send what the window allows. ``more``: only full segments, as more is being written."""
        scoreboard = self._scoreboard
        sent = 0
        limited = False
        least_bytes = SEGMENT_BYTES if more else 1
        while self.unsent_bytes >= least_bytes:
            if scoreboard.in_flight >= self.window or scoreboard.out >= self._limit:
                limited = scoreboard.in_flight >= self.window
                break
            segments = self._burst_segments()
            if self._is_paced() or self._host_is_full(segments):
                break
            sent += self._send_burst(segments, least_bytes)
        if sent or limited:
            self._validate(limited or scoreboard.in_flight >= self.window)
        if sent:
            self._resent += sent
            self._set_timer(after_sending=True)

    def _burst_segments(self) -> int:
        """How many segments leave at once."""
        return 1

    def _send_burst(self, segments: int, least_bytes: int) -> int:
        sent = size_bytes = 0
        while sent < segments and self.unsent_bytes >= least_bytes:
            size_bytes += self._send_new()
            sent += 1
        self._pace(sent, size_bytes)
        return sent

    def _pace(self, segments: int, size_bytes: int) -> None:
        """So much has left at once."""

    def _is_paced(self) -> bool:
        """Whether the next burst has to wait; sending goes on when it may leave."""
        return False

    def _host_is_full(self, segments: int) -> bool:
        """Whether enough waits at the port; then sending goes on when it has left."""
        bursts_bytes = _HOST_BURSTS * segments * (SEGMENT_BYTES + HEADER_BYTES)
        return self._host_queue.is_full(max(bursts_bytes, self.pacing_bytes_per_s * _HOST_S), self.on_room)

    def _send_new(self) -> int:
        size_bytes = min(self.unsent_bytes, SEGMENT_BYTES)
        self.unsent_bytes -= size_bytes
        messages = take_messages(self._ends, size_bytes)
        scoreboard = self._scoreboard
        now = self._clock.now
        segment = TcpSegment(scoreboard.following, size_bytes, not self.unsent_bytes, messages)
        if scoreboard.in_flight == 0:
            self._control.resumed(self, now, now - self._last_sent_s)
        scoreboard.add(segment, now)
        self._transmit(segment)
        return size_bytes

    def _transmit(self, segment: TcpSegment) -> None:
        self._last_sent_s = self._clock.now
        self._host_queue.send(segment.size_bytes + HEADER_BYTES, self._receive, (segment, self._last_sent_s))

    def _resend(self, segment: TcpSegment) -> None:
        self._scoreboard.resent(segment, self._clock.now)
        self._transmit(segment)

    def _resend_lost(self) -> None:
        """Send again what is lost, as far as the window allows."""
        scoreboard = self._scoreboard
        while scoreboard.again < scoreboard.lost and scoreboard.in_flight < self.window:
            segment = scoreboard.next_lost()
            if segment is None or self._is_paced():
                return
            self._resend(segment)
            self._resent += 1
            self._pace(1, segment.size_bytes)

    # ---- whether the window is used -----------------------------------------------------------------------------

    def _validate(self, limited: bool) -> None:
        """Take note of whether the window limits the connection."""
        scoreboard = self._scoreboard
        if (
            scoreboard.first >= self._limited_until
            or limited
            or (not self._limited and scoreboard.out > self._most_out)
        ):
            self._limited = limited
            self._most_out = scoreboard.out
            self._limited_until = scoreboard.following
        if self._is_limited:
            self._window_used = 0
            self._window_used_s = self._clock.now
            return
        self._window_used = max(self._window_used, scoreboard.out)
        if self._restarts and self._clock.now - self._window_used_s >= self._round_trips.timeout_s:
            self._shrink_unused()

    @property
    def _is_limited(self) -> bool:
        return self._limited or (self.window < self.threshold and self.window < 2 * self._most_out)

    def _shrink_unused(self) -> None:
        """Of a window of which only a part was used for a timeout, half of the rest is kept (RFC 2861)."""
        used = max(self._window_used, self._first_window)
        if self._state is RecoveryState.OPEN and used < self.window:
            self.threshold = self._present_threshold()
            self.window = (self.window + used) // 2
        self._window_used = 0
        self._window_used_s = self._clock.now

    def _shrink_after_idle(self) -> None:
        """Halve the window for each timeout in which nothing was sent (RFC 2861; Linux: ``tcp_cwnd_restart``)."""
        timeout_s = self._round_trips.timeout_s
        idle_s = self._clock.now - self._last_sent_s
        if idle_s <= timeout_s:
            return
        self.threshold = self._present_threshold()
        least = min(self._first_window, self.window)
        while (idle_s := idle_s - timeout_s) > 0 and self.window > least:
            self.window //= 2
        self.window = max(self.window, least)
        self._window_used = 0
        self._window_used_s = self._clock.now

    def _present_threshold(self) -> float:
        if self._state is RecoveryState.RECOVERY:
            return self.threshold
        return max(self.threshold, self.window // 2 + self.window // 4)

    # ---- acknowledgements ---------------------------------------------------------------------------------------

    def acknowledged(self, acknowledgement: Acknowledgement) -> None:
        now = self._clock.now
        scoreboard = self._scoreboard
        round_trips = self._round_trips
        self.now_s = now
        prior = Prior(scoreboard.lost, scoreboard.marked, scoreboard.in_flight)
        delivered = scoreboard.acknowledge(acknowledgement, now, round_trips.least_s)
        if delivered.oldest_s <= now:  # else there is none
            round_trips.observe(now - delivered.oldest_s, scoreboard.first, scoreboard.following)
            self._control.sampled(self, now - delivered.latest_s, scoreboard.first, scoreboard.following)
        if 0 <= self._probe_ends <= acknowledgement.next_number:
            self._probe_answered(acknowledgement)
        if not delivered.segments or scoreboard.sacked or scoreboard.lost or self._state is not RecoveryState.OPEN:
            self._recover(delivered.advanced and acknowledgement.echo_s < self._noted_s)
        if delivered.segments:
            self._set_timer()
        self._set_window(delivered, prior)
        self._resend_lost()
        self.on_room()

    def _set_window(self, delivered: Delivered, prior: Prior) -> None:
        if self._state is RecoveryState.RECOVERY:
            self._reduce(delivered.segments, delivered.advanced and self._scoreboard.lost <= prior.lost)
        elif delivered.advanced and self._is_limited:
            self._control.acknowledged(self, delivered.segments)

    # ---- recovery -----------------------------------------------------------------------------------------------

    def _recover(self, spurious: bool) -> None:
        """``spurious``: what is acknowledged was sent before the last loss was noted."""
        if self._state is not RecoveryState.OPEN and spurious:
            self._undo()
        elif self._state is not RecoveryState.OPEN and self._scoreboard.first >= self._high:
            if self._state is RecoveryState.RECOVERY:
                self._end_reduction()
            self._state = RecoveryState.OPEN
        self._find_lost()

    def _find_lost(self) -> None:
        settle_s = 0.0
        if self._state is RecoveryState.OPEN and self._scoreboard.sacked < _DUPLICATES:
            settle_s = min(self._round_trips.least_s / 4, self._round_trips.smoothed_s)
        self._reordering_at_s = self._scoreboard.find_lost(self._clock.now, settle_s)
        if self._scoreboard.lost and self._state is RecoveryState.OPEN:
            self._state = RecoveryState.RECOVERY
            self._high = self._scoreboard.following
            self._probe_ends = -1
            self._recovered = self._resent = 0
            self._note_loss()

    def _note_loss(self) -> None:
        self._prior_window = self.window
        self._prior_threshold = self.threshold
        self._noted_s = self._clock.now
        self.threshold = self._control.reduced(self)

    def _reduce(self, delivered: int, advanced: bool) -> None:
        """PRR: let the window follow what is delivered. ``advanced``: in order, and nothing more is lost."""
        if delivered <= 0:
            return
        in_flight = self._scoreboard.in_flight
        threshold = int(self.threshold)
        self._recovered += delivered
        if in_flight > threshold:
            send = math.ceil(threshold * self._recovered / self._prior_window) - self._resent
        else:
            send = max(self._recovered - self._resent, delivered) + (1 if advanced else 0)
            send = min(threshold - in_flight, send)
        self.window = in_flight + max(send, 0 if self._resent else 1)

    def _end_reduction(self) -> None:
        self.window = int(self.threshold)

    def _probe_answered(self, acknowledgement: Acknowledgement) -> None:
        if not self._probe_resent or acknowledgement.duplicate:
            self._probe_ends = -1
        elif acknowledgement.next_number > self._probe_ends:  # it has repaired a loss
            self._probe_ends = -1
            self.threshold = self._control.reduced(self)
            self._end_reduction()

    def _time_out(self) -> None:
        """Take all that is under way for lost, and begin anew with one segment."""
        if self._state is RecoveryState.OPEN or self._high <= self._scoreboard.first:
            self._note_loss()
        self._scoreboard.lose_all(self._clock.now)
        self._control.timed_out(self, self._scoreboard.following)
        self._state = RecoveryState.LOSS
        self._high = self._scoreboard.following
        self._probe_ends = -1
        self.window = self._scoreboard.in_flight + 1
        self._round_trips.back_off()
        if self.gave_up:
            self._timer_s = math.inf
            return
        self._resend_lost()
        self._timer_s = tick_after(self._clock.now + self._round_trips.timeout_s)

    def _undo(self) -> None:
        """Nothing was lost: begin where it was noted."""
        self._scoreboard.none_lost()
        self.window = self._control.undone(self, self._prior_window)
        self.threshold = self._prior_threshold
        self._state = RecoveryState.OPEN

    # ---- timers -------------------------------------------------------------------------------------------------

    def _set_timer(self, after_sending: bool = False) -> None:
        scoreboard = self._scoreboard
        now = self._clock.now
        if not scoreboard.out:
            self._timer_s = self._reordering_at_s = math.inf
            return
        if after_sending and self._timer_s < math.inf and self._state is not RecoveryState.OPEN:
            return  # that of the oldest segment runs
        at_s = (scoreboard.oldest.sent_s if after_sending else now) + self._round_trips.timeout_s
        if self._state is RecoveryState.OPEN:  # a timeout that is over bounds nothing (``tcp_schedule_loss_probe``)
            probe_s = now + self._round_trips.probe_s(alone=scoreboard.out == 1)
            if at_s <= now:
                at_s = probe_s
            elif self._probe_ends < 0:
                at_s = min(at_s, probe_s)
        self._timer_s = tick_after(max(at_s, now))
        self._wake()

    def _wake(self) -> None:
        at_s = min(self._timer_s, self._reordering_at_s)
        if at_s < self._wakes_s:
            self._wakes_s = at_s
            self._clock.at_background(at_s, self._on_timer)

    def _on_timer(self, _: Any) -> None:
        now = self.now_s = self._clock.now
        if now < self._wakes_s:
            return  # a later one was set
        self._wakes_s = math.inf
        if self._reordering_at_s <= now:
            self._find_lost()
            if self._state is RecoveryState.RECOVERY and not self._recovered:
                self._reduce(1, advanced=False)
            self._resend_lost()
            if self._state is RecoveryState.RECOVERY:  # no longer when a probe was due (``tcp_rack_reo_timeout``)
                self._timer_s = tick_after(max(self._scoreboard.oldest.sent_s + self._round_trips.timeout_s, now))
            self.on_room()
        elif self._timer_s <= now and self._scoreboard.out:
            if self._state is RecoveryState.OPEN and self._probe_ends < 0:  # a probe comes before the timeout
                self._probe()
            else:
                self._time_out()
        self._wake()

    def _probe(self) -> None:
        """Send new data, or the last segment again, as no acknowledgement has come for two round trips."""
        self._probe_resent = not self.unsent_bytes or self._scoreboard.out >= self._limit
        if self._probe_resent:
            self._resend(self._scoreboard.newest)
        else:
            self._send_new()
        self._probe_ends = self._scoreboard.following
        self._timer_s = tick_after(self._clock.now + self._round_trips.timeout_s)
