"""Records of numbers: the state of a simulated network, which functions read and write.

The functions of ``packets`` and ``flows`` are written once. Python runs them on these classes; ``compiled`` lets numba
compile the same functions for structures of the same fields in memory. So both execute the same statements in the same
order, and a float has the same bits in both. That is why a record has numbers only, refers to another one by its index,
and a list of records is linked by a field; -1: there is none.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

NONE = -1


class Record(msgspec.Struct, eq=False):
    """Fields are of the types ``int``, ``float`` and ``bool``, and 0 at first."""


class Event(Record):
    """An event that is scheduled: see ``events``. It is of the record ``who``."""

    time_s: float = 0.0
    number: int = 0
    kind: int = 0
    who: int = 0


class Timeline(Record):
    """What every network has: the present, and what is scheduled. Lists are lists of records; compiled, they are
    addresses of arrays.

    now, number  the present instant; the number of the last event that was scheduled
    most_events  that happen at once, so that a run can be interrupted
    steps        events that have happened, and other work that takes as long
    immediate    events that were scheduled for the present instant since this was last set to 0
    events, background  how many are scheduled; those of timers among them, which wait for nothing but time
    foreground   of the events of the run that are not the network's: those that are no background events; negative: let
                 no background event happen without a look at the run
    unsettled    something is to be done at the end of the present instant
    reserve      events, and other records that are kept free, that one event may need; so many have to be free
    who          what the status that was returned is about
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
