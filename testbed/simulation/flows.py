"""Flow-level network: flows share links by weighted max-min fairness, and every capacity may change at any time.

Flows of the same path, cap and weight form a class. They have one rate, so a class keeps one number (the service that
each of its flows has had) and a heap of the services at which its flows end; the solver sees classes only. Changes
within one instant are solved once, at the end of the instant, for the links and classes that they can reach.
A class that has its links to itself changes nothing for others when its flows have ended: it *rests* on them, still in
the solver's lists, until it goes on or another one wants a link of its path.
Sizes are bytes, rates bytes per second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from testbed.simulation import layout as k
from testbed.simulation.clock import Clock
from testbed.simulation.solver_state import SolverState

Done = Callable[[], None]
_TAG_TOLERANCE_BYTES = 1e-6


class ReservableLink:
    """A link that somebody may keep to themselves, having foreseen all of their flows: see ``phase``."""

    __slots__ = ("classes", "give_way")

    def __init__(self) -> None:
        self.classes: list[FlowClass] = []  # over this link
        self.give_way: Callable[[], None] | None = None  # of who keeps it; called when anybody else starts a flow

    @property
    def free(self) -> bool:
        """Whether it carries nothing, nor does anybody keep it."""
        return self.give_way is None and not any(each.flows for each in self.classes)


class FlowClass:
    """Flows that always have the same rate. Made by ``FlowNetwork.flow_class``; fields are the network's."""

    __slots__ = (
        "base", "delivered", "dirty", "flows", "idle", "number", "parked", "path", "ports", "shares", "started",
        "tags", "watched",
    )  # fmt: skip

    def __init__(self, number: int, path: tuple[int, ...]) -> None:
        self.number, self.path = number, path
        self.base = number * k.CLASS_FLOATS
        self.flows = 0
        self.tags: list[tuple[float, int, float, int, Done]] = []  # service at the end, sequence, size, flows, done
        self.idle, self.dirty = True, False  # idle: not among those that the solver is to know
        self.parked = False  # idle, but the solver has not been told
        self.shares = False  # others may have been active on its links since it is
        self.watched = False  # whether ``FlowNetwork.carrying`` is to tell of it
        self.delivered = 0.0  # bytes of flows that have ended
        self.started = 0.0  # sum over active flows of the service at their start
        self.ports: tuple[ReservableLink, ...] = ()  # of its links, those that somebody may keep


class FlowNetwork:
    """Links by number, with a capacity each. ``compiled`` uses numba for the same arithmetic, bit for bit.

    ``longest_path``: at first; it grows with the paths. ``compile_after``: so many solves, each counted
    as often as there are flows, are enough in Python.
    """

    def __init__(
        self, clock: Clock, capacities: Sequence[float], longest_path: int, compiled: bool = False,
        compile_after: float = math.inf,
    ) -> None:  # fmt: skip
        self._clock, self._compile_after = clock, compile_after
        self._store = SolverState(len(capacities), longest_path)
        if compiled:
            self._store.compile()
        for link, capacity in enumerate(capacities):
            self._store.LF[link * k.LINK_FLOATS + k.CAPACITY] = float(capacity)
        self._classes: list[FlowClass] = []
        self._ports: dict[int, ReservableLink] = {}
        self._alone: dict[tuple[float, float, float, int], SolverState] = {}  # their state is empty between two plays
        self._latest: list[FlowClass | None] = [None] * len(capacities)  # by link: the last class to become active
        self._dirty: list[int] = []
        self._dirty_links: set[int] = set()
        self._flush_pending = False
        self._wake_s = math.inf
        self._sequence = 0
        self.active = 0  # flows in the network
        self.carrying: dict[FlowClass, None] = {}  # watched classes that have carried anything; whoever reads it clears
        self.solves = 0
        self._wake_callback, self._flush_callback = self._wake, self._flush

    def flow_class(self, path: Sequence[int], weight: float = 1.0, cap: float = math.inf) -> FlowClass:
        """A class of flows over these links (all different); ``cap`` limits each flow."""
        assert weight > 0 and cap >= 0 and (path or cap < math.inf), (path, weight, cap)
        assert len(set(path)) == len(path) <= k.HOPS, path
        if len(path) > self._store.width:
            self._store.widen(len(path))
        new = FlowClass(len(self._classes), tuple(path))
        self._store.add_class(new.path, weight, cap)
        if self._ports:
            new.ports = tuple(self._ports[link] for link in new.path if link in self._ports)
            for port in new.ports:
                port.classes.append(new)
        self._classes.append(new)
        return new

    def port(self, link: int) -> ReservableLink:
        """That link, as one that may be kept; to be asked for before there are classes over it."""
        if link not in self._ports:
            assert not any(link in each.path for each in self._classes), link
            self._ports[link] = ReservableLink()
        return self._ports[link]

    def alone(self, flow_class: FlowClass, flows: int) -> SolverState:
        """A network of the one link of that class, and as many classes like it as needed; for ``SolverState.play``."""
        (link,), held = flow_class.path, self._store
        weight, cap = (held.F[flow_class.base + at] for at in (k.WEIGHT, k.CAP))
        what = (self.capacity(link), weight, cap, flows)
        store = self._alone.get(what)
        if store is None:
            store = self._alone[what] = SolverState(1, 1)
            store.LF[k.CAPACITY] = what[0]
            for _ in range(flows):
                store.add_class((0,), weight, cap)
        if held.compiled and not store.compiled:
            store.compile()
        return store

    def start(
        self, flow_class: FlowClass, size_bytes: float, done: Done, flows: int = 1, passed_bytes: float = 0.0
    ) -> None:
        """Start ``flows`` flows of ``size_bytes`` each, of which ``passed_bytes`` have passed already.

        ``done()`` is called once, when (together) they have ended.
        """
        if flow_class.ports:
            for port in flow_class.ports:
                if port.give_way is not None:
                    port.give_way()
        served = 0.0
        if flow_class.idle:
            self._begin(flow_class)
        else:
            F, base, now = self._store.F, flow_class.base, self._clock.now  # noqa: N806
            served = F[base + k.SERVED]
            if F[base + k.UPDATED] < now:
                served = F[base + k.SERVED] = self._served(flow_class)
                F[base + k.UPDATED] = now
        served -= passed_bytes  # as if they had begun so much earlier
        self._sequence += 1
        flow_class.flows += flows
        flow_class.started += served * flows
        self.active += flows
        if flow_class.watched:
            self.carrying[flow_class] = None
        heappush(flow_class.tags, (served + size_bytes, self._sequence, size_bytes, flows, done))
        if not flow_class.dirty:
            self._touch(flow_class)

    def _begin(self, flow_class: FlowClass) -> None:
        """It becomes active anew; who rests on its links does so no more."""
        flow_class.idle = False
        F, base = self._store.F, flow_class.base  # noqa: N806
        F[base + k.SERVED], F[base + k.UPDATED] = 0.0, self._clock.now
        if flow_class.parked:
            flow_class.parked = False
            return
        flow_class.shares = False
        latest = self._latest
        for link in flow_class.path:
            before, latest[link] = latest[link], flow_class
            if before is not None and before is not flow_class:
                if before.parked:
                    self._take_out(before)
                elif not before.idle:
                    before.shares = flow_class.shares = True
            if self._store.active(link):
                flow_class.shares = True

    def _take_out(self, flow_class: FlowClass) -> None:
        """It rests no more, and the solver knows it no more."""
        flow_class.parked = False
        self._store.take_out(flow_class.number)

    def set_cap(self, flow_class: FlowClass, cap: float) -> None:
        """Limit each flow of the class to ``cap`` from now on."""
        F, at = self._store.F, flow_class.base + k.CAP  # noqa: N806
        if F[at] != cap:
            F[at] = cap
            self._touch(flow_class)

    def set_capacity(self, link: int, capacity: float) -> None:
        """The link's capacity from now on."""
        self._store.LF[link * k.LINK_FLOATS + k.CAPACITY] = float(capacity)
        latest = self._latest[link]
        if latest is not None and latest.parked:
            self._take_out(latest)
        if link not in self._dirty_links:
            self._dirty_links.add(link)
            self._dirty.append(-1 - link)
            self._ask_flush()

    def capacity(self, link: int) -> float:
        """The link's capacity now."""
        capacity: float = self._store.LF[link * k.LINK_FLOATS + k.CAPACITY]
        return capacity

    def rate(self, flow_class: FlowClass) -> float:
        """Rate of one flow of the class, as last solved."""
        rate: float = self._store.F[flow_class.base + k.RATE]
        return 0.0 if flow_class.parked else rate

    def delivered_bytes(self, flow_class: FlowClass) -> float:
        """Bytes that all flows of the class together have carried until now."""
        if not flow_class.flows:
            return flow_class.delivered
        return flow_class.delivered + flow_class.flows * self._served(flow_class) - flow_class.started

    def left_bytes(self, flow_class: FlowClass) -> float:
        """What the flow of the class that ends first has still to carry; 0 when none is active."""
        return flow_class.tags[0][0] - self._served(flow_class) if flow_class.tags else 0.0

    def _served(self, flow_class: FlowClass) -> float:
        F, base = self._store.F, flow_class.base  # noqa: N806
        served: float = F[base + k.SERVED]
        elapsed_s = self._clock.now - F[base + k.UPDATED]
        return served + F[base + k.RATE] * elapsed_s if elapsed_s > 0 else served

    def _touch(self, flow_class: FlowClass) -> None:
        if not flow_class.dirty:
            flow_class.dirty = True
            self._dirty.append(flow_class.number)
            if not self._flush_pending:
                self._flush_pending = True
                self._clock.closing.append(self._flush_callback)

    def _ask_flush(self) -> None:
        if not self._flush_pending:
            self._flush_pending = True
            self._clock.at_end_of_instant(self._flush_callback)

    def _flush(self, _: Any) -> None:
        self._flush_pending = False
        self.solves += 1
        dirty, classes = self._dirty, self._classes
        for number in dirty:
            if number < 0 or classes[number].tags or classes[number].shares or classes[number].idle:
                next_s = self._solve(dirty)
                break
        else:  # nothing has happened but that classes ended which had their links to themselves
            next_s = self._rest(dirty)
        dirty.clear()
        if next_s < self._wake_s:
            self._wake_s = next_s
            self._clock.at(next_s, self._wake_callback)

    def _solve(self, dirty: list[int]) -> float:
        """New rates for what has changed; returns the time of the next completion."""
        store, classes = self._store, self._classes
        F = store.F  # noqa: N806
        for number in dirty:
            if number >= 0:
                touched = classes[number]
                touched.dirty = False
                base, tags = touched.base, touched.tags
                if tags:
                    F[base + k.FLOWS], F[base + k.TOP] = float(touched.flows), tags[0][0]
                else:
                    touched.idle, touched.parked = True, False
                    F[base + k.FLOWS], F[base + k.TOP] = 0.0, math.inf
        self._dirty_links.clear()
        next_s = store.flush(self._clock.now, dirty)
        if not store.compiled:
            self._compile_after -= self.active
            if self._compile_after < 0:
                store.compile()
        return next_s

    def _rest(self, dirty: list[int]) -> float:
        """These classes rest; returns the time of the next completion."""
        store, classes = self._store, self._classes
        for number in dirty:
            touched = classes[number]
            touched.idle, touched.parked, touched.dirty = True, True, False
            store.F[touched.base + k.SOLVED_FLOWS] = 0.0  # its rate is to be found anew
        return store.next_s()

    def _wake(self, _: Any) -> None:
        now = self._clock.now
        if now != self._wake_s:
            return  # an earlier completion was found since
        self._wake_s = math.inf
        store = self._store
        ended: list[Done] = []
        for i in range(store.take_due(now)):
            self._collect(self._classes[store.due[i]], ended)
        for done in ended:
            done()
        if not self._flush_pending:  # woken for what was over already; the next completion is still to come
            self._ask_flush()

    def _collect(self, flow_class: FlowClass, ended: list[Done]) -> None:
        """Take the flows of the class that end at this instant."""
        tags = flow_class.tags
        until = self._store.F[flow_class.base + k.SERVED] * (1 + k.SAME) + _TAG_TOLERANCE_BYTES
        while tags and tags[0][0] <= until:
            tag, _, size_bytes, flows, done = heappop(tags)
            flow_class.flows -= flows
            flow_class.started -= (tag - size_bytes) * flows
            flow_class.delivered += size_bytes * flows
            self.active -= flows
            ended.append(done)
        if not flow_class.flows:
            flow_class.started = 0.0
        self._touch(flow_class)
