"""How a connection over packets is set up: TCP's handshake and the testbed's own, whose frames wait in queues, too.

Frames of the initiator and of the acceptor take turns: SYN and its answer; hello and answer; proof and verdict
(``testbed.realtime.auth``). A SYN is sent again each second until one is answered (``simulation.handshake``), another
frame after TCP's timeout. So a connection is set up late where others fill a queue, and has measured round trips with
that queue in them. Acknowledgements that an answer does not carry are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from testbed.simulation.handshake import connection_attempts
from testbed.simulation.packets.engine import PacketEngine
from testbed.simulation.packets.segment import HEADER_BYTES
from testbed.simulation.packets.timers import LEAST_TIMEOUT_S

_SYN_BYTES = HEADER_BYTES + 8  # with the largest segment's size, the window's scale, and that blocks are acknowledged
_HELLO_BYTES = 150
_ANSWER_BYTES = 67
_PROOF_BYTES = 32
_VERDICT_BYTES = 1
_FRAMES_BYTES = (
    _SYN_BYTES,
    _SYN_BYTES,
    HEADER_BYTES + _HELLO_BYTES,
    HEADER_BYTES + _ANSWER_BYTES,
    HEADER_BYTES + _PROOF_BYTES,
    HEADER_BYTES + _VERDICT_BYTES,
)
_SYN_ANSWER = 1
_HELLO = 2


class Handshake:
    """Sets a connection up from now on.

    paths     there and back, of the engine
    given_up  whether the initiator's process has ended, and sends nothing more
    done      called at the end, with the round-trip times that the initiator has measured
    """

    def __init__(
        self,
        engine: PacketEngine,
        paths: tuple[int, int],
        given_up: Callable[[], bool],
        done: Callable[[list[float]], None],
    ) -> None:
        self._engine = engine
        self._clock = engine.clock
        self._paths = paths
        self._given_up = given_up
        self._done = done
        self._taken = 0  # frames that have arrived in their turn
        self._sent_s = 0.0  # the initiator's last one
        self._round_trips_s: list[float] = []
        self._attempts = connection_attempts(self._clock.now)
        next(self._attempts)  # this one
        self._attempt(None)

    def _attempt(self, _: Any) -> None:
        if self._taken > _SYN_ANSWER or self._given_up():
            return
        self._send(0)
        self._clock.at(next(self._attempts), self._attempt)

    def _send(self, number: int) -> None:
        if number % 2 == 0:
            self._sent_s = self._clock.now
        path = self._paths[number % 2]
        self._engine.send_datagrams(path, [_FRAMES_BYTES[number]], 0, partial(self._take, number))

    def _send_until_answered(self, number: int, timeout_s: float) -> None:
        """Send a frame, and again after the timeout, which then doubles, unless it has arrived by then."""
        if self._taken > number or self._given_up():
            return
        self._send(number)
        again = partial(self._send_again, number, 2 * timeout_s)
        self._clock.at(self._clock.now + timeout_s, again)

    def _send_again(self, number: int, timeout_s: float, _: Any) -> None:
        self._send_until_answered(number, timeout_s)

    def _take(self, number: int) -> None:
        """A frame has arrived."""
        if number == 0 and self._taken == _SYN_ANSWER:
            self._send(_SYN_ANSWER)  # it was lost
        if number != self._taken:
            return
        self._taken += 1
        if number % 2:
            self._round_trips_s.append(self._clock.now - self._sent_s)
        if self._taken == len(_FRAMES_BYTES):
            self._done(self._round_trips_s)
        elif self._taken < _HELLO:
            self._send(self._taken)
        else:
            first_s = self._round_trips_s[0]
            self._send_until_answered(self._taken, first_s + max(2 * first_s, LEAST_TIMEOUT_S))
