"""Connects a simulated network to the clock: one call processes all network events between two events of the run.

Events of the run and of the network share one order: by time, and at the same instant in the order in which they were
scheduled. At an instant with events of both, the clock's queue holds an entry for each event of the network.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from testbed.errors import CapabilityError
from testbed.simulation.clock import Clock
from testbed.simulation.machine.events import (
    DONE,
    EVENT_NUMBERS,
    LAST_BACKGROUND,
    NEEDS_LOOK,
    NEEDS_ROOM,
    RUN,
    STATUSES,
    STEP,
)
from testbed.simulation.machine.machine import LOADED, Machine

# In the time of so many steps in Python, compiled code can be loaded (0.7 s) or made (20 s)
LOAD_AFTER = 100_000
MAKE_AFTER = 3_000_000
_COMPILES = (
    "the simulator of networks is being compiled, which takes some 20 s: ./setup.sh does that once, for all runs that "
    "can read what it has kept beside the sources"
)


class Engine(ABC):
    """The clock's source of events (``clock.EventSource``). ``machine`` holds the network and executes its events.

    compiled  whether to run compiled code; ``None``: switch to it once it saves more time than loading it costs
    at_once   if ``compiled`` is ``None``: switch before the first event. The engine also does so if this process has
              already loaded the compiled code
    warn      called with a message for the user, such as the reason for a long wait
    net       the network's record
    """

    _has_background = False  # whether the network has background events

    def __init__(self, clock: Clock, machine: Machine, compiled: bool | None, at_once: bool) -> None:
        self.clock = clock
        self.next_s = math.inf
        self._now = 0.0  # the network's present instant, as last set
        self.warn: Callable[[str], None] = lambda message: None
        self.machine = machine
        self.net = machine.net
        self._compile_after: float = LOAD_AFTER
        if compiled is False:
            self._compile_after = math.inf
        elif at_once or machine.program.name in LOADED:
            self._compile_after = 0
        clock.source = self
        if compiled:
            self._compile()

    @abstractmethod
    def _compiled(self) -> Machine:
        """Return a machine that continues from the present state with compiled code.

        Raise ``CapabilityError`` if compiled code cannot be kept anywhere.
        """

    @abstractmethod
    def _finish(self, status: int) -> None:
        """Serve the request in a call's status, and the requests that follow from it. ``status`` is never ``DONE``."""

    def _make_room(self) -> None:
        """Provide as many free records as the next event may need."""
        self.machine.make_room()

    def _compile_if_it_pays(self) -> None:
        """Switch to compiled code. If numba's cache does not have it yet, wait for ``MAKE_AFTER`` steps first."""
        from testbed.simulation.machine.compiled import is_kept

        if is_kept(self.machine.program) or self._compile_after == MAKE_AFTER:
            self._compile()
        else:
            self._compile_after = MAKE_AFTER

    def _compile(self) -> None:
        """Switch to compiled code; warn and stay with Python if compiled code cannot be kept anywhere."""
        from testbed.simulation.machine.compiled import is_kept

        self._compile_after = math.inf
        if not is_kept(self.machine.program):
            self.warn(_COMPILES)
        try:
            self.machine = self._compiled()
        except CapabilityError as error:
            self.warn(f"networks are simulated by Python, which takes fifty times as long: {error}")
        self.net = self.machine.net

    # ---- events: see ``clock.EventSource`` ----------------------------------------------------------------------

    def peek(self) -> float:
        at_s: float = self.clock.now if self.net.unsettled else self.net.next_s
        return at_s

    @property
    def unsettled(self) -> bool:
        return bool(self.net.unsettled)

    @property
    def events(self) -> int:
        count: int = self.net.events
        return count

    @property
    def background_events(self) -> int:
        count: int = self.net.background
        return count

    def numbers_now(self) -> list[int]:
        """Return, in order, the clock's number at the scheduling of each network event of the next instant."""
        return [number // EVENT_NUMBERS for number in self.machine.numbers_now()]

    def run(self, until_s: float, until_number: int) -> bool:
        """Process network events until the run's event (``until_s``, ``until_number``) is next or one needs the run.

        Return whether the network had anything to do before that event: an event, or work at the end of this instant.
        """
        net = self.net
        clock = self.clock
        next_s = net.next_s
        number = until_number * EVENT_NUMBERS
        if next_s > until_s or (next_s == until_s and net.next_number >= number):
            if until_s <= clock.now or not net.unsettled:
                self.next_s = next_s
                return False
        elif net.steps >= self._compile_after:
            self._compile_if_it_pays()
            net = self.net
        foreground = 0
        if self._has_background:
            foreground = -1 if clock.stalled else clock.foreground_events
        if self._now != clock.now:
            net.now = clock.now
        status = self.machine.call(RUN, foreground, number, clock.number(), until_s, 0.0)
        clock.now = self._now = net.now
        if status != DONE:
            self._serve(status)
        return True

    def _serve(self, status: int) -> None:
        """Serve the request in the status that ``RUN`` returned."""
        clock = self.clock
        if status == NEEDS_ROOM:
            self._make_room()
            return
        self.next_s = self.net.next_s
        if status == NEEDS_LOOK:
            clock.now = self.next_s
        clock.gather_instant()
        if status != NEEDS_LOOK:  # after NEEDS_LOOK, an entry in the clock's ``ready`` processes the next event
            self._finish(status)

    def step(self) -> None:
        """Process one event of the present instant."""
        is_background = self._has_background and self.net.next_kind <= LAST_BACKGROUND
        if is_background:
            self.clock.on_background()
        self.call(STEP)
        if is_background:
            self.clock.on_background()

    def call(self, command: int, who: int = 0, what: int = 0, time_s: float = 0.0, value: float = 0.0) -> None:
        """Execute a command at the present instant and serve the request in its status; see ``Program.enter``."""
        status = self._call(command, who, what, time_s, value)
        if status != DONE:
            self._finish(status)

    def _call(self, command: int, who: int, what: int = 0, time_s: float = 0.0, value: float = 0.0) -> int:
        """Execute a command. Return the request in its status, or ``DONE``."""
        clock = self.clock
        if self._now != clock.now:
            self.net.now = self._now = clock.now
        status: int = self.machine.call(command, who, what, clock.number(), time_s, value)
        if status == DONE:
            return DONE
        if status == NEEDS_ROOM:
            self._make_room()
            return self._call(command, who, what, time_s, value)
        if status >= STATUSES:
            clock.add_steps(status // STATUSES)
        return status % STATUSES

    def record(self, kind: str, index: int) -> Any:
        return self.machine.record(kind, index)
