"""The machine on which a run is emulated: all nodes' software shares its few cores, and waits for them.

A real run of a dozen processes on two cores spends a good part of a short round in them: messages are packed,
authenticated, copied and looked at, and steps really compute before they are paced. With a ``HostPlan`` (measured by
``testbed calibrate``) each of these takes a core for a while. Threads take turns, one piece of work each; a thread's
own pieces follow one another. Emulating costs, too: every segment on the WAN is forwarded, shaped and delayed by the
same cores. That work begins with a message's transfer, and the message is not there before it is done; where the cores
have time it is done long before. Without a host, every node has a processor of its own
(``testbed.simulation.compute``).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from testbed.plan.model import HostPlan
from testbed.simulation.clock import Clock

Done = Callable[[], None]
SEGMENT_BYTES = 1448  # of payload in a full frame: MTU 1500, TCP timestamps


class HostModel:
    """Cores, and the threads that have something to do and no core."""

    def __init__(self, clock: Clock, plan: HostPlan) -> None:
        assert plan.cores > 0, plan
        self.plan = plan
        self._clock, self._idle = clock, plan.cores
        self._ready: deque[Thread] = deque()

    def message_s(self, size_bytes: float) -> float:
        """What handling a message takes at one end."""
        return self.plan.message_s + size_bytes * self.plan.byte_s

    def carrying_s(self, size_bytes: float) -> float:
        """What moving a message across the WAN takes."""
        return self.plan.packet_s * math.ceil(size_bytes / SEGMENT_BYTES)

    def enter(self, thread: Thread) -> None:
        """``thread`` has something to do again."""
        self._ready.append(thread)
        self._start()

    def _start(self) -> None:
        while self._idle and self._ready:
            thread = self._ready.popleft()
            work_s, done = thread.pieces.popleft()
            self._idle -= 1
            self._clock.at(self._clock.now + work_s, self._ender(thread, done))

    def _ender(self, thread: Thread, done: Done) -> Callable[[Any], None]:
        def end(_: Any) -> None:
            self._idle += 1
            if thread.pieces:
                self._ready.append(thread)
            else:
                thread.waiting = False
            done()
            self._start()

        return end


class Thread:
    """A node's process, or one thread of it: does its pieces of work in their order."""

    def __init__(self, host: HostModel) -> None:
        self.host = host
        self.pieces: deque[tuple[float, Done]] = deque()
        self.waiting = False  # for a core, or has one

    def do(self, work_s: float, done: Done) -> None:
        """``done()`` is called when a core has done this piece."""
        self.pieces.append((work_s, done))
        if not self.waiting:
            self.waiting = True
            self.host.enter(self)
