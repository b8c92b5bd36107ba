"""How a connection over packets is set up: TCP's handshake and the testbed's own, whose frames also wait in queues.

Frames of the initiator and of the acceptor take turns: SYN and its answer; hello and answer; proof and verdict
(``testbed.realtime.auth``). A SYN is sent again each second until one is answered (``simulation.handshake``); the other
frames are sent again after TCP's timeout. So a full queue on the path delays the handshake, and the round-trip times
that it measures include the queue. Pure acknowledgements, which no answer carries, are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from testbed.simulation.handshake import connection_attempts
from testbed.simulation.packets.engine import PacketEngine
from testbed.simulation.packets.segment import HEADER_BYTES
from testbed.simulation.packets.timers import LEAST_TIMEOUT_S

_SYN_BYTES = HEADER_BYTES + 8  # with the options maximum segment size, window scale and SACK permitted
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
    """Sets up a connection, beginning at once.

    paths     numbers of the engine's paths there and back
    given_up  returns whether the initiator's process has ended and sends nothing more
    done      called at the end, with the round-trip times in seconds that the initiator has measured
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
        self._taken = 0  # number of frames that have arrived in their turn
        self._sent_s = 0.0  # when the initiator last sent a frame
        self._round_trips_s: list[float] = []
        self._attempts = connection_attempts(self._clock.now)
        next(self._attempts)  # the attempt that begins now
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
        """Send a frame, and send it again after each timeout until it has arrived. Each timeout is twice the last."""
        if self._taken > number or self._given_up():
            return
        self._send(number)
        again = partial(self._send_again, number, 2 * timeout_s)
        self._clock.at(self._clock.now + timeout_s, again)

    def _send_again(self, number: int, timeout_s: float, _: Any) -> None:
        self._send_until_answered(number, timeout_s)

    def _take(self, number: int) -> None:
        """Take a frame that has arrived."""
        if number == 0 and self._taken == _SYN_ANSWER:
            self._send(_SYN_ANSWER)  # a repeated SYN: send the answer again
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
