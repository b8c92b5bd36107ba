"""Completions: when the next flow of each class ends, as a binary heap of classes; see ``layout`` and ``kernels``.

The heap is indexed (``places``), so that the class whose rate has changed is moved and not searched.
"""

# ruff: noqa: N803, N806, PLR1730  (arrays have short names; min and max are slow here)

from __future__ import annotations

from testbed.simulation.layout import (
    CLASS_FLOATS,
    INFINITE,
    RATE,
    SAME,
    SERVED,
    TOP,
    UPDATED,
    Array,
    State,
)


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
        done[i], places[d] = d, i
        i, moved = parent, True
    while not moved:
        child = 2 * i
        if child > size:
            break
        if child < size and ends[done[child + 1]] < ends[done[child]]:
            child += 1
        d = done[child]
        if ends[d] >= key:
            break
        done[i], places[d] = d, i
        i = child
    done[i], places[c] = c, i


def drop(done: Array, ends: Array, places: Array, c: int) -> None:
    """Remove class ``c`` from the heap, if it is there."""
    i = places[c]
    if i <= 0:
        return
    last = done[done[0]]
    done[0] -= 1
    places[c] = 0
    if last != c:
        done[i], places[last] = last, i
        settle(done, ends, places, last)


def advance(now: float, c: int, rate: float, F: Array, ends: Array) -> None:
    """Add the service of class ``c`` since its last update, S += rate · Δt; set the new rate; compute when its next
    flow ends: now + (TOP - S) / rate."""
    b = c * CLASS_FLOATS
    if now > F[b + UPDATED]:
        F[b + SERVED] += F[b + RATE] * (now - F[b + UPDATED])
    F[b + UPDATED], F[b + RATE] = now, rate
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
    F, done, ends, places = state.F, state.done, state.ends, state.places
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
