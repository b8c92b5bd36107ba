"""The flow network's state as flat arrays, for Python (lists) and numba (arrays) alike; all are one-dimensional.

F       per class, ``CLASS_FLOATS`` each: see the names below
I       per class, ``CLASS_INTS + 3 * width`` each: marks, then path, next slots, previous slots
LF, LI  per link: capacity and scratch; the doubly linked list of its active classes (head, count). A slot of such a
        list is class * HOPS + hop, where hop is the link's place in the class' path
done    done[0]: how many classes have a completion time; then their numbers as a binary heap ordered by ``ends``
ends    per class: when its next flow ends
places  per class: its place in ``done``, or 0
work    work[0]: the stamp of this solve, which marks what it has visited; then the links and classes of the component
keys, items   heap of the progressive filling; scratch per class
shares  scratch per class

``width`` is the length of the longest path. What a solve reads for every class is in arrays of its own, so that it
stays in the processor's cache.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

Array = Any  # list[float | int] or numpy array


class State(NamedTuple):
    """All arrays: those of floats, then those of integers."""

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
    """Flows in the order of their start: when they start (s), bytes to carry (in the end: left), how many alike, when
    they end (s); and the order in which they end."""

    begin: Array
    left: Array
    flows: Array
    end: Array
    order: Array


FLOATS = 5  # of the fields of State are arrays of floats

# Floats of a class. RATE, CAP: per flow. SERVED: integral of RATE since the class was last idle, at time UPDATED. TOP:
# service at which its next flow ends. TOTAL, LIMIT: rate and limit of all its flows, during a solve. SOLVED_*: at the
# last solve. OWN: the least capacity of the links that it has to itself.
FLOWS, WEIGHT, CAP, RATE, SERVED, UPDATED, TOP = 0, 1, 2, 3, 4, 5, 6
TOTAL, LIMIT, SOLVED_FLOWS, SOLVED_CAP, OWN = 7, 8, 9, 10, 11
CLASS_FLOATS = 12
# Integers of a class, before the three groups of ``width``. MARK: stamp of the last solve that visited it. LINKED: it
# is in the lists of its links. SHARED: how many of its links have other active classes.
MARK, LINKED, SHARED = 0, 1, 2
CLASS_INTS = 3
# Floats and integers of a link. LEFT, WEIGHTS, OPEN: capacity, weights and number of the classes not yet frozen.
CAPACITY, LEFT, WEIGHTS = 0, 1, 2
LINK_FLOATS = 3
HEAD, COUNT, LINK_MARK, OPEN = 0, 1, 2, 3
LINK_INTS = 4

HOPS = 256  # longest possible path; a power of two, by which compiled code divides quickly
INFINITE = math.inf
SAME = 1e-12  # relative: levels, or instants, that differ by less are equal (some thousand rounding errors of 2e-16)
SPARE = 1e-9  # relative: a cap this much above a rate certainly does not limit it
