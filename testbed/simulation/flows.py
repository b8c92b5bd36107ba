"""A flow-level network: flows share links by weighted max-min fairness, and every capacity may change at any time.

Instead of packets it knows rates. A rate changes only when a flow starts or ends, or a capacity, cap or weight changes;
between such events a flow of rate r carries r · Δt bytes, so the next completion is known (Bertsekas and Gallager, Data
Networks, 6.5.2; the fluid models of SimGrid, Casanova et al. 2014, work alike).

Flows of the same path, cap and weight form a *flow class*. They always have one rate, so a class keeps one number, the
service S(t) = ∫ rate dt that each of its flows has had. A flow of size M that starts at s ends when S = S(s) + M, its
*tag* (virtual service as in weighted fair queueing: Parekh and Gallager 1993). A class keeps its tags in a heap, and
the solver sees classes only, not flows. Changes within one instant are solved once, at the end of the instant, for the
links and classes that they can affect.

A class that has its links to itself changes nothing for others when its flows have ended. It is *parked*: idle, but
still in the solver's lists, until it continues or another class needs a link of its path. That saves two updates of
these lists for each message.

Sizes are in bytes, rates and capacities in bytes per second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.kernels import (
    CAP,
    CAPACITY,
    CLASS_FLOATS,
    FLOWS,
    HOPS,
    LINK_FLOATS,
    RATE,
    SAME,
    SERVED,
    SOLVED_FLOWS,
    TOP,
    UPDATED,
    WEIGHT,
)
from testbed.simulation.solver_state import SolverState

Done = Callable[[], None]
_NEVER_S = 1e9  # what would end later, over a link that is down, ends only after a change
_NO_NUMBER = -1
_TAG_TOLERANCE_BYTES = 1e-6  # flows whose tags differ by less end together: rounding, not bytes


class ReservableLink:
    """A link that a ``PredictedTransfer`` may reserve while it carries no other flow."""

    def __init__(self) -> None:
        self.classes: list[FlowClass] = []  # over this link
        self.on_other_flow: Callable[[], None] | None = None  # set by the holder; called before a flow starts here

    @property
    def free(self) -> bool:
        """Whether it has no active flows and no reservation."""
        return self.on_other_flow is None and not any(each.flows for each in self.classes)


class FlowClass:
    """Flows that always have the same rate. Made by ``FlowNetwork.flow_class``, which alone changes it."""

    __slots__ = (
        "base", "cap", "counted", "delivered", "dirty", "flows", "idle", "number", "parked", "path", "reservable",
        "shares", "started", "tags", "watched", "weight",
    )  # fmt: skip

    def __init__(self, path: tuple[int, ...], weight: float, cap: float) -> None:
        self.path, self.weight = path, weight
        self.cap = cap  # while it has no number; else the solver has it
        self.number, self.base = _NO_NUMBER, 0  # in the solver
        self.flows = 0  # active ones
        self.tags: list[tuple[float, int, float, int, Done]] = []  # tag, sequence, size, how many flows, done
        self.idle = True  # has had no flow since its last end was solved
        self.dirty = False  # changed at this instant
        self.parked = False  # idle, but still in the solver's lists
        self.shares = False  # another class may have been active on one of its links since this one became active
        self.watched = False  # whether ``FlowNetwork.carrying`` includes it
        self.delivered = 0.0  # bytes of flows that have ended
        self.counted = 0.0  # bytes that the reader of ``FlowNetwork.carrying`` has counted
        self.started = 0.0  # sum over active flows of the service at their start
        self.reservable: tuple[ReservableLink, ...] = ()  # of its links


class FlowNetwork:
    """Links by number, each with a capacity.

    longest_path   links of the longest path; grows if a longer one is added
    compiled       solve with numba: the same arithmetic, bit for bit
    compile_after  switch to numba after so much work in Python: the sum over solves of the active flows
    carrying       watched classes that have carried anything since the reader last cleared it
    """

    def __init__(
        self,
        clock: Clock,
        capacities: Sequence[float],
        longest_path: int,
        compiled: bool = False,
        compile_after: float = math.inf,
    ) -> None:
        self._clock, self._compile_after = clock, compile_after
        self._capacities = [float(capacity) for capacity in capacities]
        self._solver = self._new_solver(longest_path, compiled)
        self._classes: list[FlowClass] = []
        self._reservable: dict[int, ReservableLink] = {}
        self._isolated: dict[tuple[float, float, float, int], SolverState] = {}  # reused: empty between simulations
        self._latest: list[FlowClass | None] = [None] * len(capacities)  # by link: the last class to become active
        self._dirty: list[int] = []
        self._dirty_links: set[int] = set()
        self._wake_s = math.inf
        self._sequence = 0
        self.active = 0  # flows in the network
        self.carrying: dict[FlowClass, None] = {}
        self._wake_callback, self._flush_callback = self._wake, self._flush

    def _new_solver(self, width: int, compiled: bool) -> SolverState:
        solver = SolverState(len(self._capacities), width)
        if compiled:
            solver.compile()
        for link, capacity in enumerate(self._capacities):
            solver.LF[link * LINK_FLOATS + CAPACITY] = capacity
        return solver

    def flow_class(self, path: Sequence[int], weight: float = 1.0, cap: float = math.inf) -> FlowClass:
        """Add a class of flows over these links (all different). ``cap`` limits each flow, in bytes per second."""
        assert weight > 0 and cap >= 0 and (path or cap < math.inf), (path, weight, cap)
        assert len(set(path)) == len(path) <= HOPS, path
        if len(path) > self._solver.width:
            self._solver.widen(len(path))
        new = FlowClass(tuple(path), weight, cap)
        self._number(new)
        if self._reservable:
            new.reservable = tuple(self._reservable[link] for link in new.path if link in self._reservable)
            for link in new.reservable:
                link.classes.append(new)
        return new

    def _number(self, flow_class: FlowClass) -> None:
        flow_class.number = len(self._classes)
        flow_class.base = flow_class.number * CLASS_FLOATS
        self._solver.add_class(flow_class.path, flow_class.weight, flow_class.cap)
        self._classes.append(flow_class)

    def begin_anew(self) -> None:
        """Forget all classes, of which none may have flows. One that is used again is taken for a new one."""
        assert not self.active, "flows are under way"
        for each in self._classes:
            each.cap, each.number, each.base = self.cap(each), _NO_NUMBER, 0
            each.idle, each.parked, each.dirty, each.shares = True, False, False, False
        self._solver = self._new_solver(self._solver.width, self._solver.compiled)
        self._classes.clear()
        self._dirty.clear()
        self._dirty_links.clear()
        self._latest = [None] * len(self._capacities)

    def reservable(self, link: int) -> ReservableLink:
        """Make a link reservable. Only before classes are added over it."""
        if link not in self._reservable:
            assert not any(link in each.path for each in self._classes), link
            self._reservable[link] = ReservableLink()
        return self._reservable[link]

    def isolated(self, flow_class: FlowClass, flows: int) -> SolverState:
        """Return the state of a network of the one link of ``flow_class`` and ``flows`` classes like it, for
        ``SolverState.simulate_flows``."""
        (link,), solver = flow_class.path, self._solver
        weight, cap = (solver.F[flow_class.base + at] for at in (WEIGHT, CAP))
        key = (self.capacity(link), weight, cap, flows)
        isolated = self._isolated.get(key)
        if isolated is None:
            isolated = self._isolated[key] = SolverState(1, 1)
            isolated.LF[CAPACITY] = key[0]
            for _ in range(flows):
                isolated.add_class((0,), weight, cap)
        if solver.compiled and not isolated.compiled:
            isolated.compile()
        return isolated

    def start(self, flow_class: FlowClass, size_bytes: float, done: Done, flows: int = 1) -> None:
        """Start ``flows`` flows of ``size_bytes`` each. ``done()`` is called once, when all end together."""
        if flow_class.reservable:
            for link in flow_class.reservable:
                if link.on_other_flow is not None:
                    link.on_other_flow()
        if flow_class.number == _NO_NUMBER:
            self._number(flow_class)
        served = 0.0
        if flow_class.idle:
            self._begin(flow_class)
        else:
            F, base, now = self._solver.F, flow_class.base, self._clock.now  # noqa: N806
            served = F[base + SERVED]
            if F[base + UPDATED] < now:
                served = F[base + SERVED] = self._served(flow_class)
                F[base + UPDATED] = now
        self._sequence += 1
        flow_class.flows += flows
        flow_class.started += served * flows
        self.active += flows
        if flow_class.watched:
            self.carrying[flow_class] = None
        heappush(flow_class.tags, (served + size_bytes, self._sequence, size_bytes, flows, done))
        self._touch(flow_class)

    def _begin(self, flow_class: FlowClass) -> None:
        """The class becomes active; other classes that are parked on its links leave the solver's lists."""
        flow_class.idle = False
        F, base = self._solver.F, flow_class.base  # noqa: N806
        F[base + SERVED], F[base + UPDATED] = 0.0, self._clock.now
        if flow_class.parked:
            flow_class.parked = False
            return
        flow_class.shares = False
        latest = self._latest
        for link in flow_class.path:
            before, latest[link] = latest[link], flow_class
            if before is not None and before is not flow_class:
                if before.parked:
                    self._unpark(before)
                elif not before.idle:
                    before.shares = flow_class.shares = True
            if self._solver.active(link):
                flow_class.shares = True

    def _unpark(self, flow_class: FlowClass) -> None:
        """Remove a parked class from the solver's lists."""
        flow_class.parked = False
        self._solver.remove_from_lists(flow_class.number)

    def set_cap(self, flow_class: FlowClass, cap: float) -> None:
        """Limit each flow of the class to ``cap`` (bytes per second) from now on."""
        if flow_class.number == _NO_NUMBER:
            flow_class.cap = cap
            return
        F, at = self._solver.F, flow_class.base + CAP  # noqa: N806
        if F[at] != cap:
            F[at] = cap
            self._touch(flow_class)

    def cap(self, flow_class: FlowClass) -> float:
        """Return the limit of each flow of the class, in bytes per second."""
        cap: float = flow_class.cap if flow_class.number == _NO_NUMBER else self._solver.F[flow_class.base + CAP]
        return cap

    def set_weight(self, flow_class: FlowClass, weight: float) -> None:
        """Set the weight of each flow of the class from now on."""
        if flow_class.weight == weight:
            return
        flow_class.weight = weight
        if flow_class.number != _NO_NUMBER:
            F, base = self._solver.F, flow_class.base  # noqa: N806
            F[base + WEIGHT], F[base + SOLVED_FLOWS] = weight, 0.0  # no number of flows: forces a solve
            if flow_class.tags:
                self._touch(flow_class)

    def set_capacity(self, link: int, capacity: float) -> None:
        """Set a link's capacity (bytes per second) from now on."""
        self._capacities[link] = float(capacity)
        self._solver.LF[link * LINK_FLOATS + CAPACITY] = self._capacities[link]
        latest = self._latest[link]
        if latest is not None and latest.parked:
            self._unpark(latest)
        if link not in self._dirty_links:
            self._dirty_links.add(link)
            if not self._dirty:
                self._clock.at_end_of_instant(self._flush_callback)
            self._dirty.append(-1 - link)

    def capacity(self, link: int) -> float:
        """Return a link's present capacity, in bytes per second."""
        return self._capacities[link]

    def delivered_bytes(self, flow_class: FlowClass) -> float:
        """Return the bytes that all flows of the class together have carried until now."""
        if not flow_class.flows:
            return flow_class.delivered
        return flow_class.delivered + flow_class.flows * self._served(flow_class) - flow_class.started

    @property
    def at_rest(self) -> bool:
        """Whether no flow is active, and no event is scheduled but background events and wake-ups that are stale."""
        return not self.active and self._clock.idle_but_for(self._wake_callback)

    def rate(self, flow_class: FlowClass) -> float:
        """Return the rate of each flow of the class, as last solved (bytes per second)."""
        rate: float = self._solver.F[flow_class.base + RATE]
        return rate if flow_class.flows else 0.0

    def left_bytes(self, flow_class: FlowClass) -> float:
        """Return what the next flow of the class to end has still to carry, in bytes; 0 if none is active."""
        return flow_class.tags[0][0] - self._served(flow_class) if flow_class.tags else 0.0

    def shorten(self, flow_class: FlowClass, less_bytes: float) -> None:
        """Let the only flows of the class carry ``less_bytes`` less than they were to; less than ``left_bytes``."""
        ((tag, sequence, size_bytes, flows, done),) = flow_class.tags
        flow_class.tags[0] = (tag - less_bytes, sequence, size_bytes - less_bytes, flows, done)
        self._touch(flow_class)

    def _served(self, flow_class: FlowClass) -> float:
        F, base = self._solver.F, flow_class.base  # noqa: N806
        served: float = F[base + SERVED]
        elapsed_s = self._clock.now - F[base + UPDATED]
        return served + F[base + RATE] * elapsed_s if elapsed_s > 0 else served

    def _touch(self, flow_class: FlowClass) -> None:
        if not flow_class.dirty:
            flow_class.dirty = True
            if not self._dirty:
                self._clock.at_end_of_instant(self._flush_callback)
            self._dirty.append(flow_class.number)

    def _flush(self, _: Any) -> None:
        dirty, classes = self._dirty, self._classes
        for number in dirty:
            if number < 0 or (touched := classes[number]).tags or touched.shares or touched.idle:
                next_s = self._solve(dirty)
                break
        else:  # the only changes are ends of classes that had their links to themselves
            next_s = self._park(dirty)
        dirty.clear()
        if next_s < self._wake_s and next_s < _NEVER_S:  # else the wake-up would stay scheduled when it is stale
            self._wake_s = next_s
            self._clock.at(next_s, self._wake_callback)

    def _solve(self, dirty: list[int]) -> float:
        """Solve for what has changed. Return the time of the next completion."""
        solver, classes = self._solver, self._classes
        F = solver.F  # noqa: N806
        for number in dirty:
            if number >= 0:
                touched = classes[number]
                touched.dirty = False
                base, tags = touched.base, touched.tags
                if tags:
                    F[base + FLOWS], F[base + TOP] = float(touched.flows), tags[0][0]
                else:
                    touched.idle, touched.parked = True, False
                    F[base + FLOWS], F[base + TOP] = 0.0, math.inf
        if self._dirty_links:
            self._dirty_links.clear()
        next_s = solver.flush(self._clock.now, dirty)
        if not solver.compiled:
            self._compile_after -= self.active
            if self._compile_after < 0:
                solver.compile()
        return next_s

    def _park(self, dirty: list[int]) -> float:
        """Park these classes. Return the time of the next completion."""
        solver, classes = self._solver, self._classes
        for number in dirty:
            touched = classes[number]
            touched.idle, touched.parked, touched.dirty = True, True, False
            solver.F[touched.base + SOLVED_FLOWS] = 0.0  # no number of flows: forces a solve when it continues
        return solver.next_s()

    def _wake(self, _: Any) -> None:
        now = self._clock.now
        if now != self._wake_s:
            return  # an earlier completion has been found since
        self._wake_s = math.inf
        solver = self._solver
        ended: list[Done] = []
        classes, due = self._classes, solver.due
        for i in range(solver.take_due(now)):
            self._collect(classes[due[i]], ended)
        for done in ended:
            done()
        if not self._dirty:  # nothing ended, by rounding: arm the wake-up for the next completion
            self._clock.at_end_of_instant(self._flush_callback)

    def _collect(self, flow_class: FlowClass, ended: list[Done]) -> None:
        """Remove the flows of the class that end at this instant, and add their callbacks to ``ended``."""
        tags = flow_class.tags
        until = self._solver.F[flow_class.base + SERVED] * (1 + SAME) + _TAG_TOLERANCE_BYTES
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
