"""The flow network's state as flat arrays, for Python (lists) and numba (arrays) alike; all are one-dimensional.

F       per class, ``CLASS_FLOATS`` each: see the names below
I       per class, ``CLASS_INTS + 3 * width`` each: marks, then path, next, previous
LF, LI  per link: capacity and scratch; head of the list of its active classes (as slot = class * HOPS + hop), count
done    done[0] classes with a completion time, then their numbers as a binary heap ordered by ``ends``
ends    per class: when its next flow ends
places  per class: its place in ``done``; 0: it has none
work    work[0] the stamp of this solve, then room for links and classes of the component
keys, items   heap of the progressive filling, or scratch by class
shares  scratch by class

What is read for every class at every step of a solve stands in arrays of its own, so that it stays in the cache.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

Array = Any  # list[float | int] or numpy array


class State(NamedTuple):
    """All arrays: first those of floats, then those of integers."""

    F: Array
    LF: Array
    ends: Array
    keys: Array
    shares: Array
    I: Array  # noqa: E741
    LI: Array
    done: Array
    places: Array
    work: Array
    items: Array


class FlowArrivals(NamedTuple):
    """Of flows in the order in which they start: when, what each has to carry (in the end: had left), so many alike,
    when they ended; and in which order they ended."""

    begin: Array
    left: Array
    flows: Array
    end: Array
    order: Array


FLOATS = 5  # so many of them are of floats

# Floats of a class. RATE and CAP are per flow; SERVED = integral of RATE since the class was last idle; OWN: the least
# capacity of those links that it has to itself.
FLOWS, WEIGHT, CAP, RATE, SERVED, UPDATED, TOP = 0, 1, 2, 3, 4, 5, 6
TOTAL, LIMIT, SOLVED_FLOWS, SOLVED_CAP, OWN = 7, 8, 9, 10, 11
CLASS_FLOATS = 12
# Integers of a class, before the three groups of ``width``: links of the path, next slot, previous slot. SHARED: how
# many of its links others are active on, too.
MARK, LINKED, SHARED = 0, 1, 2
CLASS_INTS = 3
# Floats and integers of a link.
CAPACITY, LEFT, WEIGHTS = 0, 1, 2
LINK_FLOATS = 3
HEAD, COUNT, LINK_MARK, OPEN = 0, 1, 2, 3
LINK_INTS = 4

HOPS = 256  # more than any path has; a power of two, by which compiled code divides quickly
INFINITE = math.inf
SAME = 1e-12  # relative: two levels of the filling, or two instants, that are one
SPARE = 1e-9  # relative: a cap that is so much above a rate does not limit it
