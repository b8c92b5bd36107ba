"""Completions of flows: when the next flow of each class ends, in a binary heap; see ``layout`` and ``kernels``."""

# ruff: noqa: N803, N806, PLR1730  (one-letter names of arrays stand in nearly every line; min and max are slow here)

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
    """Put class ``c`` where its completion belongs in the heap, adding it if it is not there."""
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
    """Take class ``c`` out of the heap, if it is there."""
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
    """Bring class ``c`` to ``now`` at its old rate, give it the new one, and say when its next flow ends."""
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
    """Classes whose next flow ends now: out of the heap, brought to ``now``, into ``due``; returns how many."""
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
