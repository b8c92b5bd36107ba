"""Records of numbers, which hold the state of a simulated network.

The functions of ``packets`` and ``flows`` are written once. Python runs them on these classes, and numba compiles the
same functions for C structures with the same fields (``compiled``). Both execute the same statements in the same order,
so that every float has the same bits. Therefore a record contains only numbers, refers to another record by its index
(-1: none), and linked lists of records go through a field.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

NONE = -1


class Record(msgspec.Struct, eq=False):
    """The base of all records. Fields have the types ``int``, ``float`` and ``bool``, and begin as 0."""


class Event(Record):
    """A scheduled event: see ``events``. ``who`` is the index of the record it concerns."""

    time_s: float = 0.0
    number: int = 0
    kind: int = 0
    who: int = 0


class Timeline(Record):
    """The fields that every network has: the present instant and the scheduled events.

    A list field is a list of records; in compiled code, the address of an array.

    now, number  the present instant; the number of the last event that was scheduled
    most_events  events processed in one call, at most, so that a run can be interrupted
    steps        events processed so far, plus other work that takes as long as so many events
    immediate    events that the present command has scheduled for the present instant
    next_s, next_number, next_kind  of the next event; ``next_s`` is infinite if there is none
    events, background  number of scheduled events; number of background events (timers) among them
    foreground   number of the run's own events that are not background events; negative: return NEEDS_LOOK before each
                 background event
    unsettled    whether work remains to be done at the end of the present instant
    reserve      free records of each kind that one event may need; the next event happens only if so many are free
    who          the record that the returned status is about
    event_room   events for which there is still room
    """

    now: float = 0.0
    number: int = 0
    most_events: int = 64
    steps: int = 0
    immediate: int = 0
    next_s: float = math.inf
    next_number: int = 0
    next_kind: int = 0
    events: int = 0
    background: int = 0
    foreground: int = 0
    unsettled: bool = False
    reserve: int = 64
    who: int = 0
    event_room: int = 0
    event_list: list[Any] = msgspec.field(default_factory=list)
