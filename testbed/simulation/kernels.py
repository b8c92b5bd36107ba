"""Weighted max-min fair sharing as functions on flat arrays: one source, run by Python on lists or compiled by numba.

Both execute the same statements in the same order, so they give the same bits; ``flows`` describes the model. No flow's
rate can be raised but by lowering that of a flow whose rate per weight is not larger. Progressive filling (Bertsekas
and Gallager, Data Networks, 6.5.2) finds that: raise one level, the rate per weight, for all classes together; freeze
the classes of a link when it is full, a class when it meets a limit of its own; continue with the others. The levels at
which that would happen are kept in a heap; that of a link rises when other links freeze some of its classes, so it is
checked again when it is taken from the heap.

``flush`` solves after changes, for the links and classes that they can affect. It skips whatever cannot have changed:

* a class on links of its own has the rate min(CAP, OWN / flows), whatever the others do;
* a flow that takes the place of one that has just ended in its class changes no rate;
* a cap that limits a class neither before nor after its change alters nothing (``_cap_is_slack``);
* one shared link that holds all classes (one port that all senders send to) is not filled step by step, and needs no
  heap (``level_of_port``).

All arrays are one-dimensional (``State``):

F       per class, ``CLASS_FLOATS`` each: see the names below
I       per class, ``CLASS_INTS + 3 * width`` each: marks, then path, next slots, previous slots
LF, LI  per link: capacity and scratch; the doubly linked list of its active classes (head, count). A slot of such a
        list is class * HOPS + hop, where hop is the link's place in the class' path
done    done[0]: how many classes have a completion time; then their numbers as a binary heap ordered by ``ends``, which
        is indexed (``places``), so that the class whose rate has changed is moved and not searched
ends    per class: when its next flow ends
places  per class: its place in ``done``, or 0
work    work[0]: the stamp of this solve, which marks what it has visited; then the links and classes of the component
keys, items   heap of the progressive filling; scratch per class
shares  scratch per class

``width`` is the length of the longest path. What a solve reads for every class is in arrays of its own, so that it
stays in the processor's cache.
"""

# ruff: noqa: N803, N806, E741, PLR1730  (arrays have short names; min and max are slow here)

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from ctypes import PYFUNCTYPE, c_double, c_long, c_void_p
from typing import Any, NamedTuple

Array = Any  # list[float | int] or numpy array


class State(NamedTuple):
    """All arrays: those of floats, then those of integers."""

    F: Array
    LF: Array
    ends: Array
    keys: Array
    shares: Array
    I: Array
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
FLOWS = 0
WEIGHT = 1
CAP = 2
RATE = 3
SERVED = 4
UPDATED = 5
TOP = 6
TOTAL = 7
LIMIT = 8
SOLVED_FLOWS = 9
SOLVED_CAP = 10
OWN = 11
CLASS_FLOATS = 12
# Integers of a class, before the three groups of ``width``. MARK: stamp of the last solve that visited it. LINKED: it
# is in the lists of its links. SHARED: how many of its links have other active classes.
MARK = 0
LINKED = 1
SHARED = 2
CLASS_INTS = 3
# Floats and integers of a link. LEFT, WEIGHTS, OPEN: capacity, weights and number of the classes not yet frozen. LEVEL:
# where it was last full, if all classes shared no other link.
CAPACITY = 0
LEFT = 1
WEIGHTS = 2
LEVEL = 3
LINK_FLOATS = 4
HEAD = 0
COUNT = 1
LINK_MARK = 2
OPEN = 3
LINK_INTS = 4

HOPS = 256  # longest possible path; a power of two, by which compiled code divides quickly
INFINITE = math.inf
SAME = 1e-12  # relative: levels, or instants, that differ by less are equal (some thousand rounding errors of 2e-16)
SPARE = 1e-9  # relative: a cap this much above a rate certainly does not limit it

# ---- a binary heap of (key, item) in two arrays ----------------------------------------------------------------------


def push(keys: Array, items: Array, size: int, key: float, item: int) -> int:
    """Add an item. Return the new size."""
    j = size
    while j > 0:
        parent = (j - 1) >> 1
        if keys[parent] <= key:
            break
        keys[j] = keys[parent]
        items[j] = items[parent]
        j = parent
    keys[j] = key
    items[j] = item
    return size + 1


def pop(keys: Array, items: Array, size: int) -> int:
    """Remove the item of the smallest key. Return the new size."""
    size -= 1
    if size == 0:
        return 0
    key = keys[size]
    item = items[size]
    j = 0
    while True:
        child = 2 * j + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[j] = keys[child]
        items[j] = items[child]
        j = child
    keys[j] = key
    items[j] = item
    return size


# ---- when the next flow of each class ends ---------------------------------------------------------------------------


def settle(done: Array, ends: Array, places: Array, c: int) -> None:
    """Move class ``c`` to where its completion belongs in the heap; add it if it is not there."""
    i = places[c]
    if i <= 0:
        done[0] += 1
        i = done[0]
    key = ends[c]
    size = done[0]
    moved = False
    while i > 1:
        parent = i >> 1
        d = done[parent]
        if ends[d] <= key:
            break
        done[i] = d
        places[d] = i
        i = parent
        moved = True
    while not moved:
        child = 2 * i
        if child > size:
            break
        if child < size and ends[done[child + 1]] < ends[done[child]]:
            child += 1
        d = done[child]
        if ends[d] >= key:
            break
        done[i] = d
        places[d] = i
        i = child
    done[i] = c
    places[c] = i


def drop(done: Array, ends: Array, places: Array, c: int) -> None:
    """Remove class ``c`` from the heap, if it is there."""
    i = places[c]
    if i <= 0:
        return
    last = done[done[0]]
    done[0] -= 1
    places[c] = 0
    if last != c:
        done[i] = last
        places[last] = i
        settle(done, ends, places, last)


def advance(now: float, c: int, rate: float, F: Array, ends: Array) -> None:
    """Add the service of class ``c`` since its last update, S += rate · Δt; set the new rate; compute when its next
    flow ends: now + (TOP - S) / rate."""
    b = c * CLASS_FLOATS
    if now > F[b + UPDATED]:
        F[b + SERVED] += F[b + RATE] * (now - F[b + UPDATED])
    F[b + UPDATED] = now
    F[b + RATE] = rate
    left = F[b + TOP] - F[b + SERVED]
    if left < 0.0:
        left = 0.0
    if rate > 0.0:
        ends[c] = now + left / rate
    else:
        ends[c] = INFINITE


def take_due(now: float, due: Array, state: State) -> int:
    """Remove the classes whose next flow ends now from the heap, update their service, and write them to ``due``.
    Return how many."""
    F = state.F
    done = state.done
    ends = state.ends
    places = state.places
    n = 0
    while done[0] > 0:
        c = done[1]
        b = c * CLASS_FLOATS
        if ends[c] > now * (1.0 + SAME):
            break
        if now > F[b + UPDATED]:
            F[b + SERVED] += F[b + RATE] * (now - F[b + UPDATED])
            F[b + UPDATED] = now
        if F[b + SERVED] < F[b + TOP]:
            F[b + SERVED] = F[b + TOP]
        drop(done, ends, places, c)
        due[n] = c
        n += 1
    return n


# ---- progressive filling ---------------------------------------------------------------------------------------------


def component(n_links: int, width: int, state: State) -> int:
    """Extend the first ``n_links`` links of ``work`` to the connected component of links and classes: all that share a
    link, directly or through others. Return links * 2**32 + classes, as one integer for numba's sake.

    A link with one active class connects nothing; it only limits that class.
    """
    F = state.F
    I = state.I
    LF = state.LF
    LI = state.LI
    work = state.work
    keys = state.keys
    shares = state.shares
    n_all_links = len(LI) // LINK_INTS
    stride = CLASS_INTS + 3 * width
    stamp = work[0]
    n_classes = i = 0
    while i < n_links:
        i += 1
        link = work[i]
        LF[link * LINK_FLOATS + LEFT] = LF[link * LINK_FLOATS + CAPACITY]
        weights = 0.0
        open_ = 0
        known = 1 if LI[link * LINK_INTS + COUNT] > 1 else 0  # shared links of these classes that are known: this one
        slot = LI[link * LINK_INTS + HEAD]
        while slot >= 0:
            c = slot // HOPS
            b = c * CLASS_FLOATS
            if I[c * stride + MARK] != stamp:
                I[c * stride + MARK] = stamp
                n_classes += 1
                work[n_all_links + n_classes] = c
                flows = F[b + FLOWS]
                F[b + TOTAL] = -1.0
                limit = F[b + CAP] * flows
                if F[b + OWN] < limit:
                    limit = F[b + OWN]
                if I[c * stride + SHARED] > known:
                    for hop in range(width):
                        m = I[c * stride + CLASS_INTS + hop]
                        if m < 0:
                            break
                        if LI[m * LINK_INTS + COUNT] > 1 and LI[m * LINK_INTS + LINK_MARK] != stamp:
                            LI[m * LINK_INTS + LINK_MARK] = stamp
                            n_links += 1
                            work[n_links] = m
                F[b + LIMIT] = keys[n_classes] = limit
                shares[n_classes] = F[b + WEIGHT] * flows
            weights += F[b + WEIGHT] * F[b + FLOWS]
            open_ += 1
            slot = I[c * stride + CLASS_INTS + width + slot - c * HOPS]
        LF[link * LINK_FLOATS + WEIGHTS] = weights
        LI[link * LINK_INTS + OPEN] = open_
    return n_links * 4294967296 + n_classes


def port_of(n_links: int, n_classes: int, state: State) -> int:
    """Return the link that all classes share, if that is the only one that any of them share; else -1."""
    LI = state.LI
    work = state.work
    port = -1
    for i in range(1, n_links + 1):
        if LI[work[i] * LINK_INTS + COUNT] > 1:
            if port >= 0:
                return -1
            port = work[i]
    if port < 0 or LI[port * LINK_INTS + OPEN] != n_classes:
        return -1
    return port


def level_of_port(port: int, n_classes: int, state: State) -> float:
    """Return the level at which ``port`` is full; infinite if the classes' own limits do not fill it.

    That is Newton's method for the sum of min(limit, level · share): what those leave that a level would give more than
    their limit is shared by the others, at a new level. From the last one on, the first step may fall; from there on
    the level rises, until none is left that has a lower limit.
    """
    LF = state.LF
    limits = state.keys
    shares = state.shares
    capacity = LF[port * LINK_FLOATS + LEFT]
    lowest: float = capacity / LF[port * LINK_FLOATS + WEIGHTS]
    level: float = LF[port * LINK_FLOATS + LEVEL]
    rises = False
    if level <= lowest:
        level = lowest
        rises = True
    while True:
        left = capacity
        weights = 0.0
        highest = level * (1.0 + 2.0 * SAME)
        for i in range(1, n_classes + 1):
            if limits[i] <= highest * shares[i]:
                left -= limits[i]
            else:
                weights += shares[i]
        LF[port * LINK_FLOATS + LEVEL] = level
        if rises and weights == 0.0:
            return INFINITE
        new = lowest
        if weights > 0.0 and left / weights > lowest:
            new = left / weights
        if new <= level and (rises or left == capacity):
            return new
        level = new
        rises = True


def freeze(c: int, total: float, full: int, width: int, state: State) -> None:
    """Give class ``c`` the rate ``total`` (of all its flows), and subtract that from its shared links.

    ``full`` is the link that limits it, or -1. All classes of that link are frozen together, so it needs no update.
    """
    F = state.F
    I = state.I
    LF = state.LF
    LI = state.LI
    stride = CLASS_INTS + 3 * width
    F[c * CLASS_FLOATS + TOTAL] = total
    if full >= 0 and I[c * stride + SHARED] == 1:
        return
    weight = F[c * CLASS_FLOATS + WEIGHT] * F[c * CLASS_FLOATS + FLOWS]
    for hop in range(width):
        link = I[c * stride + CLASS_INTS + hop]
        if link < 0:
            break
        if link != full and LI[link * LINK_INTS + COUNT] > 1:
            LF[link * LINK_FLOATS + LEFT] -= total
            LF[link * LINK_FLOATS + WEIGHTS] -= weight
            LI[link * LINK_INTS + OPEN] -= 1


def heaped(n_links: int, n_classes: int, state: State) -> int:
    """Fill the heap with the levels at which links are full and classes meet their limits. Return its size."""
    F = state.F
    LF = state.LF
    LI = state.LI
    work = state.work
    keys = state.keys
    items = state.items
    n_all_links = len(LI) // LINK_INTS
    size = 0
    for i in range(1, n_links + 1):
        link = work[i]
        if LI[link * LINK_INTS + COUNT] > 1:
            level = LF[link * LINK_FLOATS + LEFT] / LF[link * LINK_FLOATS + WEIGHTS]
            size = push(keys, items, size, level, link)
    for i in range(n_all_links + 1, n_all_links + n_classes + 1):
        c = work[i]
        b = c * CLASS_FLOATS
        if F[b + LIMIT] < INFINITE:
            size = push(keys, items, size, F[b + LIMIT] / (F[b + WEIGHT] * F[b + FLOWS]), -1 - c)
    return size


def fill(n_links: int, n_classes: int, width: int, state: State) -> None:
    """Progressive filling of the component: sets TOTAL of each of its classes."""
    F = state.F
    I = state.I
    LF = state.LF
    LI = state.LI
    keys = state.keys
    items = state.items
    stride = CLASS_INTS + 3 * width
    size = heaped(n_links, n_classes, state)
    left = n_classes
    while left > 0:
        level = keys[0]
        item = items[0]
        size = pop(keys, items, size)
        if item < 0:
            c = -1 - item
            if F[c * CLASS_FLOATS + TOTAL] < 0.0:
                freeze(c, F[c * CLASS_FLOATS + LIMIT], -1, width, state)
                left -= 1
            continue
        if LI[item * LINK_INTS + OPEN] == 0:
            continue
        current = level
        if LF[item * LINK_FLOATS + WEIGHTS] > 0.0:  # else rounding has made it 0, and this is the level
            current = LF[item * LINK_FLOATS + LEFT] / LF[item * LINK_FLOATS + WEIGHTS]
        if current > level * (1.0 + SAME):
            size = push(
                keys, items, size, current, item
            )  # classes were frozen since, at lower levels: more is left for each
            continue
        slot = LI[item * LINK_INTS + HEAD]
        while slot >= 0:
            c = slot // HOPS
            b = c * CLASS_FLOATS
            if F[b + TOTAL] < 0.0:
                freeze(c, level * F[b + WEIGHT] * F[b + FLOWS], item, width, state)
                left -= 1
            slot = I[c * stride + CLASS_INTS + width + slot - c * HOPS]


# ---- changes ---------------------------------------------------------------------------------------------------------


def _count_shared(c: int, width: int, state: State) -> None:
    """Recount the links that class ``c`` shares (SHARED), and find what its other links allow it (OWN)."""
    I = state.I
    LF = state.LF
    LI = state.LI
    base = c * (CLASS_INTS + 3 * width)
    shared = 0
    own = INFINITE
    for hop in range(width):
        link = I[base + CLASS_INTS + hop]
        if link < 0:
            break
        if LI[link * LINK_INTS + COUNT] != 1:
            shared += 1
        elif LF[link * LINK_FLOATS + CAPACITY] < own:
            own = LF[link * LINK_FLOATS + CAPACITY]
    I[base + SHARED] = shared
    state.F[c * CLASS_FLOATS + OWN] = own


def _link(c: int, width: int, state: State) -> None:
    """Add class ``c`` to the lists of its links."""
    I = state.I
    LI = state.LI
    stride = CLASS_INTS + 3 * width
    base = c * stride
    I[base + LINKED] = 1
    for hop in range(width):
        link = I[base + CLASS_INTS + hop]
        if link < 0:
            break
        slot = c * HOPS + hop
        head = LI[link * LINK_INTS + HEAD]
        I[base + CLASS_INTS + width + hop] = head
        I[base + CLASS_INTS + 2 * width + hop] = -1
        if head >= 0:
            other = head // HOPS
            I[other * stride + CLASS_INTS + 2 * width + head - other * HOPS] = slot
        LI[link * LINK_INTS + HEAD] = slot
        LI[link * LINK_INTS + COUNT] += 1
        if LI[link * LINK_INTS + COUNT] == 2:
            _count_shared(head // HOPS, width, state)
    _count_shared(c, width, state)


def unlink(c: int, width: int, state: State) -> None:
    """Remove class ``c`` from the lists of its links."""
    I = state.I
    LI = state.LI
    stride = CLASS_INTS + 3 * width
    base = c * stride
    I[base + LINKED] = 0
    for hop in range(width):
        link = I[base + CLASS_INTS + hop]
        if link < 0:
            break
        after = I[base + CLASS_INTS + width + hop]
        before = I[base + CLASS_INTS + 2 * width + hop]
        if before >= 0:
            other = before // HOPS
            I[other * stride + CLASS_INTS + width + before - other * HOPS] = after
        else:
            LI[link * LINK_INTS + HEAD] = after
        if after >= 0:
            other = after // HOPS
            I[other * stride + CLASS_INTS + 2 * width + after - other * HOPS] = before
        LI[link * LINK_INTS + COUNT] -= 1
        if LI[link * LINK_INTS + COUNT] == 1:
            _count_shared(LI[link * LINK_INTS + HEAD] // HOPS, width, state)


def _cap_is_slack(c: int, flows: float, F: Array) -> bool:
    """Whether nothing has changed in class ``c`` but its cap, which limits it neither before nor after."""
    b = c * CLASS_FLOATS
    rate = F[b + RATE] * (1.0 + SPARE)
    return flows > 0.0 and flows == F[b + SOLVED_FLOWS] and rate < F[b + CAP] and rate < F[b + SOLVED_CAP]


def _apply_changes(now: float, dirty: Array, n_dirty: int, width: int, state: State) -> int:  # noqa: PLR0912, PLR0915
    """Link classes that became active, unlink those that ended, update those that share nothing. Write the links that
    need a solve to ``work`` and return how many these are."""
    F = state.F
    I = state.I
    LI = state.LI
    work = state.work
    done = state.done
    ends = state.ends
    places = state.places
    stride = CLASS_INTS + 3 * width
    n_links = 0
    for k in range(n_dirty):  # the lists first, so that the second pass sees all of them
        c = dirty[k]
        if c < 0:
            if LI[(-1 - c) * LINK_INTS + COUNT] == 1:
                _count_shared(LI[(-1 - c) * LINK_INTS + HEAD] // HOPS, width, state)
        elif F[c * CLASS_FLOATS + FLOWS] > 0.0 and I[c * stride + LINKED] == 0:
            F[c * CLASS_FLOATS + UPDATED] = now
            _link(c, width, state)
    for k in range(n_dirty):
        c = dirty[k]
        if c < 0:
            link = -1 - c
            if LI[link * LINK_INTS + LINK_MARK] != work[0]:
                LI[link * LINK_INTS + LINK_MARK] = work[0]
                n_links += 1
                work[n_links] = link
            continue
        b = c * CLASS_FLOATS
        flows = F[b + FLOWS]
        if I[c * stride + LINKED] == 0:
            continue
        if flows > 0.0 and flows == F[b + SOLVED_FLOWS] and F[b + CAP] == F[b + SOLVED_CAP]:
            advance(now, c, F[b + RATE], F, ends)  # a new flow has taken the place of one that ended
            settle(done, ends, places, c)
            continue
        shared = I[c * stride + SHARED] > 0
        if n_dirty == 1 and shared and F[b + UPDATED] != now and ends[c] != INFINITE and _cap_is_slack(c, flows, F):
            F[b + SOLVED_CAP] = F[b + CAP]
            continue
        F[b + SOLVED_FLOWS] = flows
        F[b + SOLVED_CAP] = F[b + CAP]
        if flows == 0.0:
            unlink(c, width, state)
            drop(done, ends, places, c)
            F[b + RATE] = 0.0
            F[b + SERVED] = 0.0
            ends[c] = INFINITE
        elif not shared:
            rate = F[b + OWN] / flows
            if F[b + CAP] < rate:
                rate = F[b + CAP]
            advance(now, c, rate, F, ends)
            settle(done, ends, places, c)
        if shared:
            for hop in range(width):
                link = I[c * stride + CLASS_INTS + hop]
                if link < 0:
                    break
                if LI[link * LINK_INTS + LINK_MARK] != work[0]:
                    LI[link * LINK_INTS + LINK_MARK] = work[0]
                    n_links += 1
                    work[n_links] = link
    return n_links


def _begin_with_shared(n_links: int, width: int, state: State) -> int:
    """Let a shared link be the first one, so that sums over a port are made in the order of its list, whatever has
    changed. Return the number of links."""
    I = state.I
    LI = state.LI
    work = state.work
    for i in range(2, n_links + 1):
        if LI[work[i] * LINK_INTS + COUNT] > LI[work[1] * LINK_INTS + COUNT]:
            link = work[1]
            work[1] = work[i]
            work[i] = link
    first = work[1]
    if LI[first * LINK_INTS + COUNT] != 1:
        return n_links
    path = LI[first * LINK_INTS + HEAD] // HOPS * (CLASS_INTS + 3 * width) + CLASS_INTS
    for hop in range(width):
        link = I[path + hop]
        if link < 0:
            break
        if LI[link * LINK_INTS + COUNT] > 1:
            LI[link * LINK_INTS + LINK_MARK] = work[0]
            work[n_links + 1] = first
            work[1] = link
            return n_links + 1
    return n_links


def _solve(now: float, n_links: int, width: int, state: State) -> None:
    """Compute new rates for the component of the first ``n_links`` links of ``work``."""
    F = state.F
    work = state.work
    done = state.done
    ends = state.ends
    places = state.places
    n_links = _begin_with_shared(n_links, width, state)
    both = component(n_links, width, state)
    n_links = both // 4294967296
    n_classes = both - n_links * 4294967296
    limits = state.keys
    level = 0.0
    port = port_of(n_links, n_classes, state)
    if port >= 0:
        level = level_of_port(port, n_classes, state)
    else:
        fill(n_links, n_classes, width, state)
    first = len(state.LI) // LINK_INTS + 1
    for k in range(first, first + n_classes):
        c = work[k]
        b = c * CLASS_FLOATS
        total = F[b + TOTAL]
        if port >= 0:
            total = level * F[b + WEIGHT] * F[b + FLOWS]
            if limits[k - first + 1] < total:
                total = limits[k - first + 1]
        rate = total / F[b + FLOWS]
        F[b + SOLVED_FLOWS] = F[b + FLOWS]
        F[b + SOLVED_CAP] = F[b + CAP]
        if rate == F[b + RATE] and F[b + UPDATED] != now and ends[c] != INFINITE:
            continue
        advance(now, c, rate, F, ends)
        i = places[c]  # most classes keep their place in the heap; a call for each would be slow
        end = ends[c]
        if (
            i <= 0
            or (i > 1 and ends[done[i >> 1]] > end)
            or (2 * i <= done[0] and ends[done[2 * i]] < end)
            or (2 * i < done[0] and ends[done[2 * i + 1]] < end)
        ):
            settle(done, ends, places, c)


def flush(now: float, dirty: Array, n_dirty: int, width: int, state: State) -> float:
    """Solve for what has changed (classes, and links as -1 - link). Return the time of the next completion."""
    state.work[0] += 1
    n_links = _apply_changes(now, dirty, n_dirty, width, state)
    if n_links > 0:
        _solve(now, n_links, width, state)
    if state.done[0] > 0:
        return state.ends[state.done[1]]  # type: ignore[no-any-return]
    return INFINITE


def simulate_flows(until: float, flows: FlowArrivals, dirty: Array, due: Array, width: int, state: State) -> int:
    """Simulate flows, one in each class, until a given time, then remove those that are left. Return how many ended.

    Flow ``i`` is in class ``i``, which is idle before. Sets in ``flows`` when each ended (``INFINITE``: not by
    ``until``), the bytes left to carry, and the order in which they ended.
    """
    F = state.F
    begin = flows.begin
    end = flows.end
    left = flows.left
    n = len(flows.begin)
    started = ended = 0
    next_s = INFINITE
    while started < n or next_s < INFINITE:
        now = next_s
        if started < n and begin[started] < now:
            now = begin[started]
        if now > until:
            break
        n_dirty = 0
        if now == next_s:
            n_dirty = take_due(now, due, state)
            for k in range(n_dirty):
                c = due[k]
                dirty[k] = c
                flows.order[ended] = c
                end[c] = now
                left[c] = 0.0
                F[c * CLASS_FLOATS + FLOWS] = 0.0
                F[c * CLASS_FLOATS + TOP] = INFINITE
                ended += 1
        while started < n and begin[started] <= now:
            F[started * CLASS_FLOATS + FLOWS] = flows.flows[started]
            F[started * CLASS_FLOATS + TOP] = left[started]
            dirty[n_dirty] = started
            n_dirty += 1
            started += 1
        next_s = flush(now, dirty, n_dirty, width, state)
    if ended < started:
        _remove_flows(until, started, flows, dirty, width, state)
    return ended


def _remove_flows(now: float, started: int, flows: FlowArrivals, dirty: Array, width: int, state: State) -> None:
    """Remove all flows, and set what they had left to carry."""
    F = state.F
    n_dirty = 0
    for c in range(started):
        b = c * CLASS_FLOATS
        if F[b + FLOWS] > 0.0:
            left = flows.left[c] - F[b + SERVED] - F[b + RATE] * (now - F[b + UPDATED])
            flows.left[c] = left if left > 0.0 else 0.0
            F[b + FLOWS] = 0.0
            F[b + TOP] = INFINITE
            dirty[n_dirty] = c
            n_dirty += 1
    flush(now, dirty, n_dirty, width, state)


# Before the integers stand the offsets of all arrays (State's, ``dirty`` and ``due``), the end of each kind, and the
# width of paths.
WIDTH = len(State._fields) + 2 + 2
HEADER = WIDTH + 1


def _unpacked(floats: Array, ints: Array) -> State:
    return State(
        floats[: ints[1]],
        floats[ints[1] : ints[2]],
        floats[ints[2] : ints[3]],
        floats[ints[3] : ints[4]],
        floats[ints[4] : ints[5]],
        ints[ints[6] : ints[7]],
        ints[ints[7] : ints[8]],
        ints[ints[8] : ints[9]],
        ints[ints[9] : ints[10]],
        ints[ints[10] : ints[11]],
        ints[ints[11] : ints[12]],
    )


_CALLED: tuple[Callable[..., Any], ...] = (
    push, pop, advance, settle, drop, component, port_of, level_of_port, freeze, heaped, fill, _count_shared, _link,
    unlink, _cap_is_slack, _apply_changes, _begin_with_shared, _solve, _unpacked, flush, take_due, simulate_flows,
    _remove_flows,
)  # fmt: skip


_COMPILED: list[Any] = []  # what owns the code behind the addresses


@functools.cache
def compiled() -> tuple[Callable[..., float], Callable[..., int], Callable[..., int]]:
    """Return ``flush``, ``take_due`` and ``simulate_flows`` compiled.

    The first two are C functions of (now, n_dirty, floats, integers) and of (now, floats, integers), where the last two
    are the addresses of two arrays, ``dirty`` and ``due`` among them (see ``solver_state``). numba's own way to call a
    function, which ``simulate_flows`` takes, looks into every array for 3 us: a simulated message has three calls.
    """
    import numba
    from numba import carray, types
    from numba.extending import register_jitable

    for helper in _CALLED:
        register_jitable(helper)

    def flush_at(now: float, n_dirty: int, float_address: Any, int_address: Any) -> float:
        header = carray(int_address, HEADER)
        floats = carray(float_address, header[5])
        ints = carray(int_address, header[14])
        return flush(now, ints[ints[12] : ints[13]], n_dirty, header[WIDTH], _unpacked(floats, ints))

    def take_due_at(now: float, float_address: Any, int_address: Any) -> int:
        header = carray(int_address, HEADER)
        floats = carray(float_address, header[5])
        ints = carray(int_address, header[14])
        return take_due(now, ints[ints[13] : ints[14]], _unpacked(floats, ints))

    def simulate_packed(
        until: float, n: int, width: int, times: Array, order: Array, floats: Array, ints: Array
    ) -> int:
        flows = FlowArrivals(times[:n], times[n : 2 * n], times[2 * n : 3 * n], times[3 * n :], order)
        dirty = ints[ints[12] : ints[13]]
        due = ints[ints[13] : ints[14]]
        return simulate_flows(until, flows, dirty, due, width, _unpacked(floats, ints))

    arrays = types.CPointer(types.float64), types.CPointer(types.int64)
    flush_compiled = numba.cfunc(types.float64(types.float64, types.int64, *arrays), cache=True)(flush_at)
    take_due_compiled = numba.cfunc(types.int64(types.float64, *arrays), cache=True)(take_due_at)
    _COMPILED.extend((flush_compiled, take_due_compiled))
    return (
        PYFUNCTYPE(c_double, c_double, c_long, c_void_p, c_void_p)(flush_compiled.address),
        PYFUNCTYPE(c_long, c_double, c_void_p, c_void_p)(take_due_compiled.address),
        numba.njit(cache=True)(simulate_packed),
    )
