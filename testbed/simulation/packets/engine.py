"""The packet network of a run; see ``machine.engine``."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from testbed.plan.shaping import FRAME_BYTES, burst_bytes
from testbed.simulation.clock import Clock
from testbed.simulation.machine import engine
from testbed.simulation.machine.events import DONE
from testbed.simulation.machine.machine import Machine
from testbed.simulation.machine.record import NONE
from testbed.simulation.packets.dispatch import (
    DATAGRAMS_HAVE_ARRIVED,
    HAS_ARRIVED,
    SEND_DATAGRAM,
    SERVE,
    TAKE_ON,
    USE_WINDOW,
)
from testbed.simulation.packets.generator import state_of
from testbed.simulation.packets.pools import has_room, keep_room
from testbed.simulation.packets.program import PROGRAM
from testbed.simulation.packets.socket import IS_IDLE, NEEDS_MESSAGE
from testbed.simulation.paths import WanLink

_FREE = ("packet", "segment", "frame")  # the kinds of records of which some are kept free


class Socket(Protocol):
    """The calls that the engine makes to a connection."""

    def take_message(self) -> None: ...
    def deliver(self) -> None: ...
    def tell_idle(self) -> None: ...


class PacketEngine(engine.Engine):
    """The engine of a packet network."""

    _has_background = True  # timers

    def __init__(self, clock: Clock, compiled: bool | None = None) -> None:
        self._sockets: list[Socket] = []
        self._messages: dict[int, Callable[[], None]] = {}  # best-effort messages, by index: call on arrival
        self._free_messages: list[int] = []
        super().__init__(clock, Machine(PROGRAM), compiled, at_once=False)

    def expect(self, packets: int) -> None:
        """Run compiled code from the first event on if so many packets are expected that loading it pays."""
        if packets > engine.LOAD_AFTER and self._compile_after == engine.LOAD_AFTER:  # a packet is two events
            self._compile_after = 0

    def _compiled(self) -> Machine:
        from testbed.simulation.machine.compiled import CompiledMachine
        from testbed.simulation.packets.compiled import compiled_enter

        return CompiledMachine(PROGRAM, compiled_enter, self.net)

    def _make_room(self) -> None:
        super()._make_room()
        net = self.net
        while not has_room(net):
            for kind in _FREE:
                missing = net.reserve - getattr(net, f"free_{kind}s")
                if missing > 0:
                    self._add_free(kind, 2 * net.reserve)

    def _add_free(self, kind: str, count: int) -> None:
        net = self.net
        first = self.machine.add(kind, count)
        for index in range(first, first + count - 1):
            self.record(kind, index).next = index + 1
        self.record(kind, first + count - 1).next = getattr(net, f"free_{kind}")
        setattr(net, f"free_{kind}", first)
        setattr(net, f"free_{kind}s", getattr(net, f"free_{kind}s") + count)

    # ---- parts of the network -----------------------------------------------------------------------------------

    def add_link(self, state: WanLink, random: Random, channels: int) -> int:
        """Add a link in the given state. Return its number.

        channels  how many best-effort channels it has beside the reliable one
        random    draws its losses
        """
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
        """Add the path over ``links`` from the first port to the second. Return its number."""
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
        keep_room(self.net, window)

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
        """Follow a link's state. ``rate``: the rate may have changed, so packets may leave the queues now."""
        self._follow(number, state)
        if rate and self.machine.record("link", number).backlog_bytes:
            self.call(SERVE, number)

    def send_datagrams(self, path: int, sizes: list[int], channel: int, deliver: Callable[[], None]) -> None:
        """Send the datagrams of a message, of ``sizes`` bytes. ``deliver()`` is called when all have arrived."""
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
    def messages_on_their_way(self) -> int:
        """How many best-effort messages have datagrams that may yet arrive."""
        self._forget_ended()
        return len(self._messages)

    def _forget_ended(self) -> None:
        """Forget the messages that have no datagram on its way any more."""
        while self.net.ended_datagrams != NONE:
            message = self.net.ended_datagrams
            self.net.ended_datagrams = self.machine.record("datagrams", message).next
            del self._messages[message]
            self._free_messages.append(message)

    def _finish(self, status: int) -> None:
        """See ``Engine``."""
        while status != DONE:
            who = self.net.who
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
