"""Weighted max-min fair sharing, as functions on flat arrays: one source, run by Python on lists or compiled by numba.

The same statements in the same order, so both give the same bits. State (all arrays are one-dimensional):

F       per class, ``CLASS_FLOATS`` each: see the names below
I       per class, ``CLASS_INTS + 3 * width`` each: place in the completion heap, marks, then path, next, previous
LF, LI  per link: capacity and scratch; head of the list of its active classes (as slot = class * width + hop), count
done    done[0] classes with a completion time, then their numbers as a binary heap ordered by F[NEXT]
work    work[0] the stamp of this solve, then room for links and classes of the component
keys, items   heap of the progressive filling

Sources: progressive filling (Bertsekas & Gallager, Data Networks, §6.5.2); virtual service of a class as in weighted
fair queueing (Parekh & Gallager 1993): all flows of a class have one rate, so one number says how far they are.
"""

# ruff: noqa: N803, N806, E741, PLR1730  (one-letter names of arrays stand in nearly every line; min and max are slow here)

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from testbed.simulation.heap import Array, pop, push

State = tuple[Array, Array, Array, Array, Array, Array, Array, Array]  # F, I, LF, LI, done, work, keys, items

# Floats of a class. RATE and CAP are per flow; SERVED = integral of RATE since the class was last idle.
FLOWS, WEIGHT, CAP, RATE, SERVED, UPDATED, TOP, NEXT = 0, 1, 2, 3, 4, 5, 6, 7
TOTAL, LIMIT, SOLVED_FLOWS, SOLVED_CAP = 8, 9, 10, 11
CLASS_FLOATS = 12
# Integers of a class, before the three groups of ``width``: links of the path, next slot, previous slot.
PLACE, MARK, LINKED = 0, 1, 2
CLASS_INTS = 3
# Floats and integers of a link.
CAPACITY, LEFT, WEIGHTS = 0, 1, 2
LINK_FLOATS = 3
HEAD, COUNT, LINK_MARK, OPEN = 0, 1, 2, 3
LINK_INTS = 4

INFINITE = math.inf
SAME = 1e-12  # relative: two levels of the filling, or two instants, that are one


def _settle(done: Array, F: Array, I: Array, stride: int, c: int) -> None:
    """Put class ``c`` where its F[NEXT] belongs in the heap of completions, adding it if it is not there."""
    i = I[c * stride + PLACE]
    if i <= 0:
        done[0] += 1
        i = done[0]
    key = F[c * CLASS_FLOATS + NEXT]
    size = done[0]
    moved = False
    while i > 1:
        parent = i >> 1
        d = done[parent]
        if F[d * CLASS_FLOATS + NEXT] <= key:
            break
        done[i], I[d * stride + PLACE] = d, i
        i, moved = parent, True
    while not moved:
        child = 2 * i
        if child > size:
            break
        if child < size and F[done[child + 1] * CLASS_FLOATS + NEXT] < F[done[child] * CLASS_FLOATS + NEXT]:
            child += 1
        d = done[child]
        if F[d * CLASS_FLOATS + NEXT] >= key:
            break
        done[i], I[d * stride + PLACE] = d, i
        i = child
    done[i], I[c * stride + PLACE] = c, i


def _drop(done: Array, F: Array, I: Array, stride: int, c: int) -> None:
    """Take class ``c`` out of the heap of completions, if it is there."""
    i = I[c * stride + PLACE]
    if i <= 0:
        return
    last = done[done[0]]
    done[0] -= 1
    I[c * stride + PLACE] = 0
    if last != c:
        done[i], I[last * stride + PLACE] = last, i
        _settle(done, F, I, stride, last)


def _link(c: int, width: int, I: Array, LI: Array) -> None:
    """Enter class ``c`` into the lists of its links."""
    base = c * (CLASS_INTS + 3 * width)
    I[base + LINKED] = 1
    for hop in range(width):
        link = I[base + CLASS_INTS + hop]
        if link < 0:
            break
        slot = c * width + hop
        head = LI[link * LINK_INTS + HEAD]
        I[base + CLASS_INTS + width + hop] = head
        I[base + CLASS_INTS + 2 * width + hop] = -1
        if head >= 0:
            other = head // width
            I[other * (CLASS_INTS + 3 * width) + CLASS_INTS + 2 * width + head - other * width] = slot
        LI[link * LINK_INTS + HEAD] = slot
        LI[link * LINK_INTS + COUNT] += 1


def _unlink(c: int, width: int, I: Array, LI: Array) -> None:
    """Take class ``c`` out of the lists of its links."""
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
            other = before // width
            I[other * stride + CLASS_INTS + width + before - other * width] = after
        else:
            LI[link * LINK_INTS + HEAD] = after
        if after >= 0:
            other = after // width
            I[other * stride + CLASS_INTS + 2 * width + after - other * width] = before
        LI[link * LINK_INTS + COUNT] -= 1


def _advance(now: float, c: int, rate: float, F: Array) -> None:
    """Bring class ``c`` to ``now`` at its old rate, give it the new one, and say when its next flow ends."""
    b = c * CLASS_FLOATS
    if now > F[b + UPDATED]:
        F[b + SERVED] += F[b + RATE] * (now - F[b + UPDATED])
    F[b + UPDATED], F[b + RATE] = now, rate
    left = F[b + TOP] - F[b + SERVED]
    if left < 0.0:
        left = 0.0
    if rate > 0.0:
        F[b + NEXT] = now + left / rate
    else:
        F[b + NEXT] = INFINITE


def _seed(now: float, dirty: Array, n_dirty: int, width: int, state: State) -> int:  # noqa: PLR0912
    """Link what became active, unlink what ended, finish lone classes; returns how many links need a solve."""
    F, I, LF, LI, done, work, _, _ = state
    stride = CLASS_INTS + 3 * width
    n_links = 0
    for k in range(n_dirty):  # first the lists, so that the second pass sees them all
        c = dirty[k]
        if c >= 0 and F[c * CLASS_FLOATS + FLOWS] > 0.0 and I[c * stride + LINKED] == 0:
            F[c * CLASS_FLOATS + UPDATED] = now
            _link(c, width, I, LI)
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
            _advance(now, c, F[b + RATE], F)  # a new flow took the place of one that ended: no rate changes
            _settle(done, F, I, stride, c)
            continue
        lone = True
        rate = F[b + CAP]
        for hop in range(width):
            link = I[c * stride + CLASS_INTS + hop]
            if link < 0:
                break
            if LI[link * LINK_INTS + COUNT] != 1:
                lone = False
            elif flows > 0.0 and LF[link * LINK_FLOATS + CAPACITY] / flows < rate:
                rate = LF[link * LINK_FLOATS + CAPACITY] / flows
        F[b + SOLVED_FLOWS], F[b + SOLVED_CAP] = flows, F[b + CAP]
        if flows > 0.0 and lone:
            _advance(now, c, rate, F)
            _settle(done, F, I, stride, c)
            continue
        if flows == 0.0:
            _unlink(c, width, I, LI)
            _drop(done, F, I, stride, c)
            F[b + RATE], F[b + SERVED], F[b + NEXT] = 0.0, 0.0, INFINITE
        if not lone:
            for hop in range(width):
                link = I[c * stride + CLASS_INTS + hop]
                if link < 0:
                    break
                if LI[link * LINK_INTS + LINK_MARK] != work[0]:
                    LI[link * LINK_INTS + LINK_MARK] = work[0]
                    n_links += 1
                    work[n_links] = link
    return n_links


def _component(n_links: int, width: int, state: State) -> int:
    """Close the set of links and classes that share, however indirectly. Returns links * 2**32 + classes.

    A link with one active class is no tie between classes, only a limit of that class.
    """
    F, I, LF, LI, _, work, _, _ = state
    n_all_links = len(LI) // LINK_INTS
    stride = CLASS_INTS + 3 * width
    stamp = work[0]
    n_classes = i = 0
    while i < n_links:
        i += 1
        link = work[i]
        LF[link * LINK_FLOATS + LEFT] = LF[link * LINK_FLOATS + CAPACITY]
        weights, open_ = 0.0, 0
        slot = LI[link * LINK_INTS + HEAD]
        while slot >= 0:
            c = slot // width
            b = c * CLASS_FLOATS
            if I[c * stride + MARK] != stamp:
                I[c * stride + MARK] = stamp
                n_classes += 1
                work[n_all_links + n_classes] = c
                flows = F[b + FLOWS]
                F[b + TOTAL] = -1.0
                limit = F[b + CAP] * flows
                for hop in range(width):
                    m = I[c * stride + CLASS_INTS + hop]
                    if m < 0:
                        break
                    if LI[m * LINK_INTS + COUNT] == 1:
                        if LF[m * LINK_FLOATS + CAPACITY] < limit:
                            limit = LF[m * LINK_FLOATS + CAPACITY]
                    elif LI[m * LINK_INTS + LINK_MARK] != stamp:
                        LI[m * LINK_INTS + LINK_MARK] = stamp
                        n_links += 1
                        work[n_links] = m
                F[b + LIMIT] = limit
            weights += F[b + WEIGHT] * F[b + FLOWS]
            open_ += 1
            slot = I[c * stride + CLASS_INTS + width + slot - c * width]
        LF[link * LINK_FLOATS + WEIGHTS], LI[link * LINK_INTS + OPEN] = weights, open_
    return n_links * 4294967296 + n_classes


def _freeze(c: int, total: float, full: int, width: int, state: State) -> None:
    """Class ``c`` gets ``total``; its links have that much less for the others, where there are any.

    Link ``full`` is what held it: all its classes are frozen with it, and nobody asks any more what it has left.
    """
    F, I, LF, LI, _, _, _, _ = state
    stride = CLASS_INTS + 3 * width
    F[c * CLASS_FLOATS + TOTAL] = total
    weight = F[c * CLASS_FLOATS + WEIGHT] * F[c * CLASS_FLOATS + FLOWS]
    for hop in range(width):
        link = I[c * stride + CLASS_INTS + hop]
        if link < 0:
            break
        if link != full and LI[link * LINK_INTS + COUNT] > 1:
            LF[link * LINK_FLOATS + LEFT] -= total
            LF[link * LINK_FLOATS + WEIGHTS] -= weight
            LI[link * LINK_INTS + OPEN] -= 1


def _any_below(level: float, first: int, n_classes: int, F: Array, work: Array) -> bool:
    """Whether any class of the component has a limit of its own that is met before this level (or nearly with it)."""
    level *= 1.0 + 2.0 * SAME
    for i in range(first, first + n_classes):
        b = work[i] * CLASS_FLOATS
        if F[b + LIMIT] <= level * (F[b + WEIGHT] * F[b + FLOWS]):
            return True
    return False


def _heaped(n_links: int, n_classes: int, state: State) -> int:
    """Put the levels at which links are full and classes at their limits into the heap; returns its size."""
    F, _, LF, LI, _, work, keys, items = state
    n_all_links = len(LI) // LINK_INTS
    size = 0
    for i in range(1, n_links + 1):
        link = work[i]
        if LI[link * LINK_INTS + COUNT] > 1:
            level = LF[link * LINK_FLOATS + LEFT] / LF[link * LINK_FLOATS + WEIGHTS]
            size = push(keys, items, size, level, link)
    first = n_all_links + 1
    if (
        size == 1
        and LI[items[0] * LINK_INTS + OPEN] == n_classes
        and not _any_below(keys[0], first, n_classes, F, work)
    ):
        first += n_classes  # the one link that is shared, by all of them, holds them all
    for i in range(first, n_all_links + n_classes + 1):
        c = work[i]
        b = c * CLASS_FLOATS
        if F[b + LIMIT] < INFINITE:
            size = push(keys, items, size, F[b + LIMIT] / (F[b + WEIGHT] * F[b + FLOWS]), -1 - c)
    return size


def _fill(n_links: int, n_classes: int, width: int, state: State) -> None:
    """Progressive filling of the component: raise one level (rate per weight) until each class meets a limit."""
    F, I, LF, LI, _, _, keys, items = state
    stride = CLASS_INTS + 3 * width
    size = _heaped(n_links, n_classes, state)
    left = n_classes
    while left > 0:
        level, item = keys[0], items[0]
        size = pop(keys, items, size)
        if item < 0:
            c = -1 - item
            if F[c * CLASS_FLOATS + TOTAL] < 0.0:
                _freeze(c, F[c * CLASS_FLOATS + LIMIT], -1, width, state)
                left -= 1
            continue
        if LI[item * LINK_INTS + OPEN] == 0:
            continue
        current = level
        if LF[item * LINK_FLOATS + WEIGHTS] > 0.0:  # else rounding has eaten it, and this is the level
            current = LF[item * LINK_FLOATS + LEFT] / LF[item * LINK_FLOATS + WEIGHTS]
        if current > level * (1.0 + SAME):
            size = push(keys, items, size, current, item)  # others were frozen since: more is left for each
            continue
        slot = LI[item * LINK_INTS + HEAD]
        while slot >= 0:
            c = slot // width
            b = c * CLASS_FLOATS
            if F[b + TOTAL] < 0.0:
                _freeze(c, level * F[b + WEIGHT] * F[b + FLOWS], item, width, state)
                left -= 1
            slot = I[c * stride + CLASS_INTS + width + slot - c * width]


def flush(now: float, dirty: Array, n_dirty: int, width: int, state: State) -> float:
    """Solve anew for what changed (classes, or links as -1 - link); returns the time of the next completion."""
    F, I, _, LI, done, work, _, _ = state
    work[0] += 1
    stride = CLASS_INTS + 3 * width
    n_links = _seed(now, dirty, n_dirty, width, state)
    if n_links > 0:
        n_all_links = len(LI) // LINK_INTS
        both = _component(n_links, width, state)
        n_links = both // 4294967296
        n_classes = both - n_links * 4294967296
        _fill(n_links, n_classes, width, state)
        for i in range(n_all_links + 1, n_all_links + n_classes + 1):
            c = work[i]
            b = c * CLASS_FLOATS
            rate = F[b + TOTAL] / F[b + FLOWS]
            if rate != F[b + RATE] or F[b + UPDATED] == now or F[b + NEXT] == INFINITE:
                _advance(now, c, rate, F)
                _settle(done, F, I, stride, c)
            F[b + SOLVED_FLOWS], F[b + SOLVED_CAP] = F[b + FLOWS], F[b + CAP]
    if done[0] > 0:
        return F[done[1] * CLASS_FLOATS + NEXT]  # type: ignore[no-any-return]
    return INFINITE


def take_due(now: float, due: Array, width: int, state: State) -> int:
    """Classes whose next flow ends now: out of the heap, brought to ``now``, into ``due``; returns how many."""
    F, I, _, _, done, _, _, _ = state
    stride = CLASS_INTS + 3 * width
    n = 0
    while done[0] > 0:
        c = done[1]
        b = c * CLASS_FLOATS
        if F[b + NEXT] > now * (1.0 + SAME):
            break
        if now > F[b + UPDATED]:
            F[b + SERVED] += F[b + RATE] * (now - F[b + UPDATED])
            F[b + UPDATED] = now
        if F[b + SERVED] < F[b + TOP]:
            F[b + SERVED] = F[b + TOP]
        _drop(done, F, I, stride, c)
        due[n] = c
        n += 1
    return n


_HELPERS = (push, pop, _settle, _drop, _link, _unlink, _advance, _seed, _component, _freeze, _any_below, _heaped, _fill)


@functools.cache
def compiled() -> tuple[Callable[..., float], Callable[..., int]]:
    """``flush`` and ``take_due`` compiled; ``ImportError`` without numba."""
    import numba
    from numba.extending import register_jitable

    for helper in _HELPERS:
        register_jitable(helper)
    return numba.njit(cache=True)(flush), numba.njit(cache=True)(take_due)
