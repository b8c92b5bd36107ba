"""Progressive filling of the links and classes that changes can affect; see ``kernels``.

Weighted max-min fairness: no flow's rate can be raised but by lowering that of a flow whose rate per weight is not
larger. Progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2) finds it: raise one level, the rate per
weight, for all classes together; freeze the classes of a link when it is full, a class when it meets a limit of its
own; continue with the others. The levels at which that would happen are kept in a heap; that of a link rises when
other links freeze some of its classes, so it is checked again when it is taken from the heap.

If one shared link holds all classes and no limit of their own is lower (one port that all senders send to), the level
is capacity / sum of weights, without filling: ``level_of_port``.
"""

# ruff: noqa: N806, E741, PLR1730  (arrays have short names; min and max are slow here)

from __future__ import annotations

from testbed.simulation.heap import pop, push
from testbed.simulation.layout import (
    CAP,
    CAPACITY,
    CLASS_FLOATS,
    CLASS_INTS,
    COUNT,
    FLOWS,
    HEAD,
    HOPS,
    INFINITE,
    LEFT,
    LIMIT,
    LINK_FLOATS,
    LINK_INTS,
    LINK_MARK,
    MARK,
    OPEN,
    OWN,
    SAME,
    SHARED,
    TOTAL,
    WEIGHT,
    WEIGHTS,
    State,
)


def component(n_links: int, width: int, state: State) -> int:
    """Extend the first ``n_links`` links of ``work`` to the connected component of links and classes: all that share a
    link, directly or through others. Return links * 2**32 + classes, as one integer for numba's sake.

    A link with one active class connects nothing; it only limits that class.
    """
    F, I, LF, LI, work = state.F, state.I, state.LF, state.LI, state.work
    keys, shares = state.keys, state.shares
    n_all_links = len(LI) // LINK_INTS
    stride = CLASS_INTS + 3 * width
    stamp = work[0]
    n_classes = i = 0
    while i < n_links:
        i += 1
        link = work[i]
        LF[link * LINK_FLOATS + LEFT] = LF[link * LINK_FLOATS + CAPACITY]
        weights, open_ = 0.0, 0
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
        LF[link * LINK_FLOATS + WEIGHTS], LI[link * LINK_INTS + OPEN] = weights, open_
    return n_links * 4294967296 + n_classes


def level_of_port(n_links: int, n_classes: int, state: State) -> float:
    """If exactly one link is shared, by all classes, and it limits them all: its capacity per weight; else -1."""
    LF, LI, work, limits, shares = state.LF, state.LI, state.work, state.keys, state.shares
    port = -1
    for i in range(1, n_links + 1):
        if LI[work[i] * LINK_INTS + COUNT] > 1:
            if port >= 0:
                return -1.0
            port = work[i]
    if port < 0 or LI[port * LINK_INTS + OPEN] != n_classes:
        return -1.0
    level: float = LF[port * LINK_FLOATS + LEFT] / LF[port * LINK_FLOATS + WEIGHTS]
    highest = level * (1.0 + 2.0 * SAME)
    for i in range(1, n_classes + 1):
        if limits[i] <= highest * shares[i]:  # a limit of its own comes first, or too close to tell
            return -1.0
    return level


def freeze(c: int, total: float, full: int, width: int, state: State) -> None:
    """Give class ``c`` the rate ``total`` (of all its flows), and subtract that from its shared links.

    ``full`` is the link that limits it, or -1. All classes of that link are frozen together, so it needs no update.
    """
    F, I, LF, LI = state.F, state.I, state.LF, state.LI
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
    F, LF, LI, work, keys, items = state.F, state.LF, state.LI, state.work, state.keys, state.items
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
    F, I, LF, LI, keys, items = state.F, state.I, state.LF, state.LI, state.keys, state.items
    stride = CLASS_INTS + 3 * width
    size = heaped(n_links, n_classes, state)
    left = n_classes
    while left > 0:
        level, item = keys[0], items[0]
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
