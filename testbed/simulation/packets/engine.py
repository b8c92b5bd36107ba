"""A packet network beside the clock: what happens in it between two events of the run happens in one call.

Events of both are in one order: by time, and at one instant in the order in which they were scheduled. An event of the
network has a number of its own, which is larger than the run's number (times ``EVENT_NUMBERS``) at the time when it was
scheduled. At an instant at which both have events, the clock has an entry for each of the network's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from testbed.errors import CapabilityError
from testbed.plan.shaping import FRAME_BYTES, burst_bytes
from testbed.simulation.clock import Clock
from testbed.simulation.packets.dispatch import (
    DATAGRAMS_HAVE_ARRIVED,
    EVENT_NUMBERS,
    HAS_ARRIVED,
    NEEDS_LOOK,
    NEEDS_ROOM,
    RUN,
    SEND_DATAGRAM,
    SERVE,
    STEP,
    TAKE_ON,
    USE_WINDOW,
)
from testbed.simulation.packets.events import LAST_BACKGROUND
from testbed.simulation.packets.generator import state_of
from testbed.simulation.packets.machine import Machine
from testbed.simulation.packets.pools import keep_room
from testbed.simulation.packets.records import NONE
from testbed.simulation.packets.socket import DONE, IS_IDLE, NEEDS_MESSAGE
from testbed.simulation.paths import WanLink

# Events after which Python has taken as long as loading the compiled code takes (0.7 s), and as making it (20 s)
_LOAD_AFTER = 100_000
_MAKE_AFTER = 3_000_000
_COMPILES = (
    "the packet simulator is being compiled, which takes some 20 s: ./setup.sh does that once, for all runs that can "
    "read what it has kept beside the sources"
)


class Socket(Protocol):
    """What the engine tells a connection."""

    def take_message(self) -> None: ...
    def deliver(self) -> None: ...
    def tell_idle(self) -> None: ...


class PacketEngine:
    """Becomes the clock's source of events. ``machine`` has the network, and executes.

    compiled  whether the machine is compiled; ``None``: from when loading its code pays
    packets   how many are predicted; where loading the code pays for these, nothing is left to Python
    warn      called with what a user should know who waits
    """

    def __init__(self, clock: Clock, compiled: bool | None = None, packets: int = 0) -> None:
        self.clock = clock
        self.warn: Callable[[str], None] = lambda message: None
        self.machine = Machine()
        self._net = self.machine.net
        load_after = 0 if packets > _LOAD_AFTER else _LOAD_AFTER  # a packet is two events or more
        self._compile_after = math.inf if compiled is False else load_after
        self._sockets: list[Socket] = []
        self._messages: dict[int, Callable[[], None]] = {}  # best-effort ones, by index: what is called at their end
        self._free_messages: list[int] = []
        clock.source = self
        if compiled:
            self._compile()

    def _compile_if_it_pays(self) -> None:
        """Let compiled code go on; later, if numba has not kept it and would have to make it."""
        from testbed.simulation.packets.compiled import is_kept

        if is_kept() or self._compile_after == _MAKE_AFTER:
            self._compile()
        else:
            self._compile_after = _MAKE_AFTER

    def _compile(self) -> None:
        """Let compiled code go on."""
        from testbed.simulation.packets.compiled import CompiledMachine, is_kept

        self._compile_after = math.inf
        if not is_kept():
            self.warn(_COMPILES)
        try:
            self.machine = CompiledMachine(self.machine.net)
        except CapabilityError as error:  # there is no place to keep it
            self.warn(f"packets are simulated by Python, which takes fifty times as long: {error}")
        self._net = self.machine.net

    # ---- what the network consists of ---------------------------------------------------------------------------

    def add_link(self, state: WanLink, random: Random, channels: int) -> int:
        """Add a link in this state, with ``channels`` beside the reliable one; ``random``: of its losses."""
        machine = self.machine
        number = machine.add("link")
        link = machine.record("link", number)
        link.limit_bytes = max(state.plan.queue_bytes, FRAME_BYTES)
        link.queues = channels + 1
        link.first_queue = machine.add("queue", channels + 1)
        for index in range(link.first_queue, link.first_queue + channels + 1):
            machine.record("queue", index).head = NONE
        link.generator = machine.add_words(state_of(random))
        link.empty_s = -math.inf
        link.last_arrival_s = -math.inf
        link.timer_s = math.inf
        self._follow(number, state)
        return number

    def add_port(self, rate_bps: float) -> int:
        number = self.machine.add("port")
        port = self.machine.record("port", number)
        port.seconds_per_byte = 8 / rate_bps
        port.burst_s = burst_bytes(rate_bps) * port.seconds_per_byte
        port.empty_s = -math.inf
        return number

    def add_path(self, links: tuple[int, ...], ports: tuple[int, int], lan_delay_s: float) -> int:
        """Add the way over ``links``, from one port to the other."""
        machine = self.machine
        first = machine.add("hop", len(links))
        for place, link in enumerate(links):
            machine.record("hop", first + place).link = link
        number = machine.add("path")
        path = machine.record("path", number)
        path.out_port, path.in_port = ports
        path.lan_delay_s = lan_delay_s
        path.first_hop = first
        path.last_hop = first + len(links)
        return number

    def add_connection(self, socket: Socket) -> int:
        self._sockets.append(socket)
        number = self.machine.add("connection")
        self.machine.record("connection", number).index = number
        return number

    def keep_room(self, window: int) -> None:
        """See ``pools.keep_room``."""
        keep_room(self._net, window)

    def add_generator(self, random: Random) -> int:
        return self.machine.add_words(state_of(random))

    def link(self, number: int) -> Any:
        return self.machine.record("link", number)

    def _follow(self, number: int, state: WanLink) -> None:
        link = self.machine.record("link", number)
        rate_bps = state.left_bps
        link.seconds_per_byte = 8 / rate_bps if rate_bps > 0 else math.inf
        link.burst_s = burst_bytes(rate_bps) * link.seconds_per_byte if rate_bps > 0 else 0.0
        link.delay_s = state.delay_s
        link.losses = state.lost

    def link_changed(self, number: int, state: WanLink, rate: bool) -> None:
        """Follow a link's state. ``rate``: what waits in its queues may leave at another one now."""
        self._follow(number, state)
        if rate and self.machine.record("link", number).backlog_bytes:
            self.call(SERVE, number)

    def send_datagrams(self, path: int, sizes: list[int], channel: int, deliver: Callable[[], None]) -> None:
        """Send the datagrams of a message, one after another. ``deliver()``: when all have arrived."""
        self._forget_ended()
        message = self._free_messages.pop() if self._free_messages else self.machine.add("datagrams")
        it = self.machine.record("datagrams", message)
        it.path = path
        it.channel = channel
        it.missing = len(sizes)
        it.left = len(sizes)
        self._messages[message] = deliver
        for size_bytes in sizes:
            self.call(SEND_DATAGRAM, message, size_bytes)

    @property
    def net(self) -> Any:
        """The network's record; see ``records.Network``."""
        return self._net

    @property
    def messages_on_their_way(self) -> int:
        """How many best-effort messages have datagrams that may yet arrive."""
        self._forget_ended()
        return len(self._messages)

    def _forget_ended(self) -> None:
        """Forget the messages of which no datagram is on its way any more."""
        while self._net.ended_datagrams != NONE:
            message = self._net.ended_datagrams
            self._net.ended_datagrams = self.machine.record("datagrams", message).next
            del self._messages[message]
            self._free_messages.append(message)

    # ---- events: see ``clock.EventSource`` ----------------------------------------------------------------------

    @property
    def next_s(self) -> float:
        at_s: float = self._net.next_s
        return at_s

    @property
    def events(self) -> int:
        count: int = self._net.events
        return count

    @property
    def background_events(self) -> int:
        count: int = self._net.background
        return count

    def precedes(self, time_s: float, number: int) -> bool:
        """Whether the next event precedes one of the run."""
        next_s = self._net.next_s
        return bool(next_s < time_s or (next_s == time_s and self._net.next_number < number * EVENT_NUMBERS))

    def numbers_now(self) -> list[int]:
        """Return of each event of the next instant the run's number at the time when it was scheduled, in order."""
        return [number // EVENT_NUMBERS for number in self.machine.numbers_now()]

    def run(self, until_s: float, until_number: int) -> None:
        """Let events happen, to the first one that does not precede this one of the run, or that needs the run."""
        if self._net.steps >= self._compile_after:
            self._compile_if_it_pays()
        clock = self.clock
        net = self._net
        net.now = clock.now
        foreground = -1 if clock.stalled else clock.foreground_events
        number = until_number * EVENT_NUMBERS
        status = self.machine.call(RUN, foreground, self.machine.most_events, until_s, number, clock.number())
        clock.now = net.now
        if status == DONE:
            return
        if status == NEEDS_ROOM:
            self.machine.make_room()
            return
        if status == NEEDS_LOOK:
            clock.now = net.next_s
        clock.gather_instant()
        if status != NEEDS_LOOK:  # else an entry in ``ready`` is for the next event
            self._finish(status)

    def step(self) -> None:
        """Let one event of the present instant happen."""
        is_background = self._net.next_kind <= LAST_BACKGROUND
        if is_background:
            self.clock.on_background()
        self.call(STEP)
        if is_background:
            self.clock.on_background()

    def call(self, command: int, who: int = 0, size: int = 0, time_s: float = 0.0) -> None:
        """Do what is told at the present instant, and what is needed for it; see ``dispatch.enter``."""
        self._finish(self._call(command, who, size, time_s))

    def _call(self, command: int, who: int, size: int = 0, time_s: float = 0.0) -> int:
        net = self._net
        clock = self.clock
        net.now = clock.now
        status = self.machine.call(command, who, size, time_s, 0, clock.number())
        if status == NEEDS_ROOM:
            self.machine.make_room()
            return self._call(command, who, size, time_s)
        if net.immediate:
            clock.add_steps(net.immediate)
        return status

    def _finish(self, status: int) -> None:
        """Give what is needed, until nothing is."""
        while status != DONE:
            who = self._net.who
            if status == DATAGRAMS_HAVE_ARRIVED:
                self._messages[who]()
                return
            socket = self._sockets[who]
            if status == NEEDS_MESSAGE:
                socket.take_message()
                status = self._call(TAKE_ON, who)
            elif status == IS_IDLE:
                socket.tell_idle()
                return
            else:
                socket.deliver()
                if status == HAS_ARRIVED:
                    return
                status = self._call(USE_WINDOW, who)
