"""The machine that runs an emulation: the software of all nodes shares its few cores.

A real run of a dozen processes on two cores spends a good part of a short round in them: messages are packed,
authenticated, copied and read, and steps really compute before they are paced. With a ``HostPlan`` (measured by
``testbed calibrate``) each of these occupies a core for a while:

    handling a message at one end    message_s + size · byte_s
    forwarding it across the WAN     packet_s for each segment: the same cores forward, shape and delay every packet

Ready threads get a core in the order in which they became ready, for one piece of work each; a thread's pieces follow
one another. Forwarding begins with a message's transfer, and the message is delivered when both are over. Without a
``HostPlan`` every node has a processor of its own (``testbed.simulation.compute``).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from testbed.plan.model import HostPlan
from testbed.simulation.clock import Clock
from testbed.simulation.packets.segment import SEGMENT_BYTES

Done = Callable[[], None]


class HostModel:
    """Cores, and the threads that are ready to run."""

    def __init__(self, clock: Clock, plan: HostPlan) -> None:
        assert plan.cores > 0, plan
        self.plan = plan
        self._clock, self._idle_cores = clock, plan.cores
        self._ready: deque[Thread] = deque()

    def message_s(self, size_bytes: float) -> float:
        """Processor time of handling a message at one end, in seconds."""
        return self.plan.message_s + size_bytes * self.plan.byte_s

    def forwarding_s(self, size_bytes: float) -> float:
        """Processor time of forwarding a message across the WAN, in seconds."""
        return self.plan.packet_s * math.ceil(size_bytes / SEGMENT_BYTES)

    def enter(self, thread: Thread) -> None:
        self._ready.append(thread)
        self._dispatch()

    def _dispatch(self) -> None:
        while self._idle_cores and self._ready:
            thread = self._ready.popleft()
            work_s, done = thread.pieces.popleft()
            self._idle_cores -= 1
            self._clock.at(self._clock.now + work_s, partial(self._end, thread, done))

    def _end(self, thread: Thread, done: Done, _: Any) -> None:
        self._idle_cores += 1
        if thread.pieces:
            self._ready.append(thread)
        else:
            thread.active = False
        done()
        self._dispatch()


class Thread:
    """A node's process, or one thread of it: does its pieces of work in their order."""

    def __init__(self, host: HostModel) -> None:
        self.host = host
        self.pieces: deque[tuple[float, Done]] = deque()
        self.active = False  # has a core or waits for one

    def do(self, work_s: float, done: Done) -> None:
        """Queue a piece of work of ``work_s`` seconds of processor time; ``done()`` is called when it has been done."""
        self.pieces.append((work_s, done))
        if not self.active:
            self.active = True
            self.host.enter(self)
