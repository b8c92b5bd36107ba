"""The flow network of a run: links, classes, and the handling of notices. See ``classes`` and ``machine.engine``.

Sizes are in bytes, rates and capacities in bytes per second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.flows.classes import delivered_by
from testbed.simulation.flows.dispatch import (
    COUNT,
    HAS_ARRIVED,
    HAS_ENDED,
    SET_CAP,
    SET_CAPACITY,
    SET_WEIGHT,
    SIMULATE,
    START,
)
from testbed.simulation.flows.program import PROGRAM
from testbed.simulation.flows.sending import HAS_ROOM, HAS_STARTED
from testbed.simulation.machine.engine import Engine
from testbed.simulation.machine.machine import Machine
from testbed.simulation.machine.record import NONE
from testbed.simulation.paths import SitePath
from testbed.simulation.tcp_model import TcpModel

Done = Callable[[], None]
_NOTICES = 3  # at most so many notices about one connection or transfer at one event


class ReservableLink:
    """A link that a ``PredictedTransfer`` may reserve while the link carries no other flow."""

    def __init__(self) -> None:
        self.classes: list[FlowClass] = []  # classes over this link
        self.on_other_flow: Callable[[], None] | None = None  # set by the holder; called before a flow starts here

    @property
    def free(self) -> bool:
        """Whether the link has no active flows and no reservation."""
        return self.on_other_flow is None and not any(each.flows for each in self.classes)


class FlowClass:
    """Flows that always have the same rate. Made by ``FlowNetwork.flow_class``, which alone changes it."""

    __slots__ = ("_network", "number", "path", "reservable")

    def __init__(self, network: FlowNetwork, number: int, path: tuple[int, ...]) -> None:
        self._network = network
        self.number = number
        self.path = path
        self.reservable: tuple[ReservableLink, ...] = ()  # the reservable ones of its links

    @property
    def record(self) -> Any:
        """See ``records.FlowClass``."""
        return self._network.record("flow_class", self.number)

    @property
    def flows(self) -> int:
        """How many flows are active."""
        count: int = self.record.active
        return count

    def free_links(self) -> None:
        """End reservations of its links, as a flow is about to start."""
        for link in self.reservable:
            if link.on_other_flow is not None:
                link.on_other_flow()


class FlowNetwork(Engine):
    """Links by number, each with a capacity. Becomes the clock's source of events.

    compiled, at_once  see ``Engine``
    """

    def __init__(
        self, clock: Clock, capacities: Sequence[float], compiled: bool | None = False, at_once: bool = False
    ) -> None:
        self._reservable: dict[int, ReservableLink] = {}
        self._isolated: dict[tuple[float, float, float, int], FlowNetwork] = {}  # reused: empty between simulations
        self._begin()
        super().__init__(clock, Machine(PROGRAM), compiled, at_once)
        self._add_links(capacities)

    def _begin(self) -> None:
        self.users: list[Any] = []  # connections, by number
        self._items: list[Any] = []  # by transfer: the function to call at its end, and the argument
        self._starts: dict[int, Callable[[], None]] = {}  # by transfer: the function to call when its first byte leaves
        self._free: list[int] = []  # free transfers
        self._paths: dict[SitePath, int] = {}
        self._models: dict[TcpModel, int] = {}

    def _add_links(self, capacities: Sequence[float]) -> None:
        machine = self.machine
        self.links = len(capacities)
        for kind in ("link", "level", "reached", "change"):
            machine.add(kind, self.links)
        machine.add("end")  # places in this heap begin with 1
        for number, capacity in enumerate(capacities):
            link = machine.record("link", number)
            link.capacity = float(capacity)
            link.head = NONE
            link.latest = NONE
            link.first_standing = NONE
            link.last_standing = NONE

    def _compiled(self) -> Machine:
        from testbed.simulation.flows.compiled import compiled_enter
        from testbed.simulation.machine.compiled import CompiledMachine

        return CompiledMachine(PROGRAM, compiled_enter, self.net)

    @property
    def is_compiled(self) -> bool:
        return not isinstance(self.net, PROGRAM.network)

    def begin_anew(self) -> None:
        """Forget all classes and connections, none of which may have flows. Links keep the bytes they have carried."""
        assert not self.net.active, "flows are under way"
        before = [self.record("link", number) for number in range(self.links)]
        compiled = self.is_compiled
        self._begin()
        self.machine = Machine(PROGRAM)
        self.net = self.machine.net
        self._now = 0.0
        self._add_links([link.capacity for link in before])
        for number, link in enumerate(before):
            self.record("link", number).carried = link.carried
        if compiled:
            self._compile()

    # ---- links and classes --------------------------------------------------------------------------------------

    def flow_class(self, path: Sequence[int], weight: float = 1.0, cap: float = math.inf) -> FlowClass:
        """Add a class of flows over these links, which must all be different. ``cap`` limits each flow."""
        assert weight > 0 and cap >= 0 and (path or cap < math.inf), (path, weight, cap)
        assert len(set(path)) == len(path), path
        machine = self.machine
        for kind in ("end", "level", "visit", "change"):
            machine.add(kind)
        number = machine.add("flow_class")
        first = machine.add("hop", len(path))
        for place, link in enumerate(path):
            hop = machine.record("hop", first + place)
            hop.link = link
            hop.flow_class = number
        it = machine.record("flow_class", number)
        it.first_hop = first
        it.last_hop = first + len(path)
        it.weight = float(weight)
        it.cap = float(cap)
        it.top = math.inf
        it.ends_s = math.inf
        it.heap = NONE
        it.idle = True
        new = FlowClass(self, number, tuple(path))
        if self._reservable:
            new.reservable = tuple(self._reservable[link] for link in new.path if link in self._reservable)
            for reservable in new.reservable:
                reservable.classes.append(new)
        return new

    def reservable(self, link: int) -> ReservableLink:
        """Make a link reservable. Call this before adding classes over the link."""
        return self._reservable.setdefault(link, ReservableLink())

    def start(self, flow: FlowClass, size_bytes: float, done: Done, flows: int = 1) -> None:
        """Start ``flows`` flows of ``size_bytes`` each. ``done()`` is called once, when all end together."""
        flow.free_links()
        self.call(START, flow.number, self.keep(done, None), size_bytes, float(flows))

    def set_cap(self, flow: FlowClass, cap: float) -> None:
        """Limit each flow of the class to ``cap`` from now on."""
        self.call(SET_CAP, flow.number, value=cap)

    def cap(self, flow: FlowClass) -> float:
        """Return the limit of each flow of the class."""
        return float(flow.record.cap)

    def set_weight(self, flow: FlowClass, weight: float) -> None:
        """Set the weight of each flow of the class from now on."""
        self.call(SET_WEIGHT, flow.number, value=weight)

    def set_capacity(self, link: int, capacity: float) -> None:
        """Set a link's capacity from now on."""
        self.call(SET_CAPACITY, link, value=float(capacity))

    def capacity(self, link: int) -> float:
        """Return a link's present capacity."""
        return float(self.record("link", link).capacity)

    def carried_bytes(self, links: Iterable[int]) -> list[float]:
        """Return how many bytes of watched classes each of these links has carried."""
        self.call(COUNT)
        return [self.record("link", number).carried for number in links]

    @property
    def active(self) -> int:
        """How many flows there are."""
        count: int = self.net.active
        return count

    @property
    def at_rest(self) -> bool:
        """Whether no flow is active, and only background events and stale wake-ups are scheduled."""
        net = self.net
        return not net.active and not net.unsettled and net.events == net.wakes and self.clock.idle

    def rate(self, flow: FlowClass) -> float:
        """Return the rate of each flow of the class, as last solved."""
        it = flow.record
        return float(it.rate) if it.active else 0.0

    def delivered_bytes(self, flow: FlowClass) -> float:
        """Return the bytes that all flows of the class together have carried until now."""
        return float(delivered_by(self.clock.now, flow.record))

    def left_bytes(self, flow: FlowClass) -> float:
        """Return how many bytes are left of the class's flow that ends next; 0 if no flow is active."""
        it = flow.record
        if not it.active:
            return 0.0
        served = it.served + it.rate * (self.clock.now - it.updated_s)
        return float(self.record("transfer", it.heap).key - served)

    # ---- flows that are all known in advance --------------------------------------------------------------------

    def isolated(self, flow: FlowClass, flows: int) -> FlowNetwork:
        """Return a network for ``simulate``: the only link of ``flow``, with ``flows`` equal classes over it."""
        (link,) = flow.path
        it = flow.record
        key = (self.capacity(link), it.weight, it.cap, flows)
        found = self._isolated.get(key)
        if found is None:
            found = self._isolated[key] = FlowNetwork(Clock(), [key[0]])
            found.machine.add("arrival", flows)
            for _ in range(flows):
                found.flow_class((0,), it.weight, it.cap)
        if self.is_compiled and not found.is_compiled:
            found._compile()
        return found

    def simulate(
        self, flows: Sequence[tuple[float, float, int]], until_s: float
    ) -> tuple[list[float], list[float], list[int]]:
        """Simulate flows, the i-th in class i. Each is given as (begin in s, bytes, number of equal flows), by begin.

        Return the bytes that each has left at ``until_s``, when each ended (s; infinite: not by then), and the numbers
        of the flows that ended, in the order of their ends.
        """
        arrivals = [self.record("arrival", number) for number in range(len(flows))]
        for it, (begin_s, size_bytes, count) in zip(arrivals, flows, strict=True):
            it.begin_s = begin_s
            it.left = size_bytes
            it.flows = float(count)
            it.end_s = math.inf
        ended = self.machine.call(SIMULATE, 0, len(flows), 0, until_s, 0.0)
        return [it.left for it in arrivals], [it.end_s for it in arrivals], [it.ended for it in arrivals[:ended]]

    # ---- connections --------------------------------------------------------------------------------------------

    def add_connection(self, user: Any) -> int:
        """Add a connection. ``user`` is its Python object. Return its number."""
        self.users.append(user)
        machine = self.machine
        machine.add("pipe")
        machine.add("notice", _NOTICES)
        self.net.reserve += 2
        return machine.add("connection")

    def path(self, path: SitePath) -> int:
        """Return the number of a path's record, after updating the record from the path."""
        number = self._paths.get(path)
        if number is None:
            number = self._paths[path] = self.machine.add("path")
        it = self.record("path", number)
        it.delay_s = path.delay_s
        it.rtt_s = path.rtt_s
        it.passing = path.passing
        it.queue_bytes = path.queue_bytes
        it.is_up = path.up
        it.works = path.up and path.acknowledged
        it.is_wan = bool(path.links)
        it.narrowest = NONE if path.narrowest is None else path.narrowest.number
        return number

    def model(self, model: TcpModel) -> int:
        """Return the number of a model's record."""
        if model not in self._models:
            number = self._models[model] = self.machine.add("model")
            it = self.record("model", number)
            for name in PROGRAM.kinds["model"].__struct_fields__:
                setattr(it, name, getattr(model, name))
        return self._models[model]

    def keep(self, call: Callable[..., None], item: Any, on_start: Callable[[], None] | None = None) -> int:
        """Reserve a free transfer. Return its number.

        For a message, ``call(item)`` is called when it has arrived, and ``on_start()`` when its first byte leaves. For
        a flow without a connection, ``call()`` is called at its end.
        """
        if not self._free:
            self._find_free()
        number = self._free.pop()
        self._items[number] = call, item
        if on_start is not None:
            self._starts[number] = on_start
            self.record("transfer", number).tells_start = True
        return number

    def release(self, number: int) -> None:
        """Free a transfer."""
        self._items[number] = None
        self._free.append(number)

    def move_item(self, number: int, other: int) -> None:
        """Let the transfer ``other`` stand for the message that ``number`` has stood for."""
        self._items[other] = self._items[number]

    def _find_free(self) -> None:
        net = self.net
        while net.free != NONE:
            number = net.free
            net.free = self.record("transfer", number).left
            self._starts.pop(number, None)
            self.release(number)
        if not self._free:
            count = len(self._items) + 64
            first = self.machine.add("transfer", count)
            self.machine.add("notice", _NOTICES * count)
            self._items += [None] * count
            self._free += range(first + count - 1, first - 1, -1)

    def _finish(self, status: int) -> None:
        net = self.net
        if status == HAS_ARRIVED:
            number = net.who
            call, item = self._items[number]
            self.release(number)
            call(item)
            return
        notices = [(it.kind, it.who) for it in (self.record("notice", place) for place in range(net.notices))]
        net.notices = 0
        for kind, who in notices:
            if kind == HAS_ENDED:
                call, _ = self._items[who]
                self.release(who)
                call()
            elif kind == HAS_STARTED:
                self._starts.pop(who)()
            elif kind == HAS_ROOM:
                if (on_room := self.users[who].on_room) is not None:
                    on_room()
            elif (on_idle := self.users[who].on_idle) is not None:
                on_idle()
