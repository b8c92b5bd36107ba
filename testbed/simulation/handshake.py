"""How a simulated node connects to another: by TCP's handshake and the testbed's own.

The node sends a SYN each second until one is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.paths import SitePath

# The SYNs of one attempt to connect are a second apart (Linux from 6.5 on: tcp_syn_linear_timeouts). An attempt ends
# after 5 s, and another one follows (``testbed.realtime.connecting``).
_SYNS = 5
_SYN_S = 1.0
_ATTEMPT_S = 5.0
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5


def connection_attempts(begin_s: float) -> Iterator[float]:
    """Yield the times at which SYNs are sent, from ``begin_s`` on, as long as none is answered."""
    pause_s = _FIRST_PAUSE_S
    while True:
        yield from (begin_s + number * _SYN_S for number in range(_SYNS))
        begin_s += _ATTEMPT_S + pause_s
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def set_up(
    clock: Clock, path: SitePath, round_trips: float, given_up: Callable[[], bool], done: Callable[[Any], None]
) -> None:
    """Call ``done`` when the connection is set up: ``round_trips`` after the first SYN that finds the path working.

    ``given_up()`` returns whether the process has ended and sends no further SYN.
    """
    if path.up and path.acknowledged:
        clock.at(clock.now + round_trips * path.rtt_s, done)
        return
    attempts = connection_attempts(clock.now)

    def attempt(_: Any) -> None:
        if path.up and path.acknowledged:
            clock.at(clock.now + round_trips * path.rtt_s, done)
        elif not given_up():
            clock.at(next(attempts), attempt)

    attempt(next(attempts))
