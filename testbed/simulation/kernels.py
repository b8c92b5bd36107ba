"""Weighted max-min fair sharing, as functions on flat arrays: one source, run by Python on lists or compiled by numba.

The same statements in the same order, so both give the same bits. The arrays are in ``layout``.

Sources: progressive filling (Bertsekas & Gallager, Data Networks, §6.5.2); virtual service of a class as in weighted
fair queueing (Parekh & Gallager 1993): all flows of a class have one rate, so one number says how far they are.
"""

# ruff: noqa: N803, N806, E741, PLR1730  (one-letter names of arrays stand in nearly every line; min and max are slow here)

from __future__ import annotations

import functools
import inspect
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.simulation import heap
from testbed.simulation.completions import advance, drop, settle, take_due
from testbed.simulation.filling import component, fill, freeze, heaped, level_of_port
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
    LINK_FLOATS,
    LINK_INTS,
    LINK_MARK,
    LINKED,
    OWN,
    RATE,
    SERVED,
    SHARED,
    SOLVED_CAP,
    SOLVED_FLOWS,
    SPARE,
    TOP,
    TOTAL,
    UPDATED,
    WEIGHT,
    Array,
    FlowArrivals,
    State,
)


def _look(c: int, width: int, state: State) -> None:
    """Say anew of class ``c`` how many of its links it shares, and what the others allow it."""
    I, LF, LI = state.I, state.LF, state.LI
    base = c * (CLASS_INTS + 3 * width)
    shared, own = 0, INFINITE
    for hop in range(width):
        link = I[base + CLASS_INTS + hop]
        if link < 0:
            break
        if LI[link * LINK_INTS + COUNT] != 1:
            shared += 1
        elif LF[link * LINK_FLOATS + CAPACITY] < own:
            own = LF[link * LINK_FLOATS + CAPACITY]
    I[base + SHARED], state.F[c * CLASS_FLOATS + OWN] = shared, own


def _link(c: int, width: int, state: State) -> None:
    """Enter class ``c`` into the lists of its links."""
    I, LI = state.I, state.LI
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
            _look(head // HOPS, width, state)
    _look(c, width, state)


def unlink(c: int, width: int, state: State) -> None:
    """Take class ``c`` out of the lists of its links."""
    I, LI = state.I, state.LI
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
            _look(LI[link * LINK_INTS + HEAD] // HOPS, width, state)


def _is_spare(c: int, flows: float, F: Array) -> bool:
    """Whether nothing has changed about class ``c`` but a cap that did not limit it, and does not now."""
    b = c * CLASS_FLOATS
    rate = F[b + RATE] * (1.0 + SPARE)
    return flows > 0.0 and flows == F[b + SOLVED_FLOWS] and rate < F[b + CAP] and rate < F[b + SOLVED_CAP]


def _seed(now: float, dirty: Array, n_dirty: int, width: int, state: State) -> int:  # noqa: PLR0912, PLR0915
    """Link what became active, unlink what ended, finish lone classes; returns how many links need a solve."""
    F, I, LI, work = state.F, state.I, state.LI, state.work
    done, ends, places = state.done, state.ends, state.places
    stride = CLASS_INTS + 3 * width
    n_links = 0
    for k in range(n_dirty):  # first the lists, so that the second pass sees them all
        c = dirty[k]
        if c < 0:
            if LI[(-1 - c) * LINK_INTS + COUNT] == 1:
                _look(LI[(-1 - c) * LINK_INTS + HEAD] // HOPS, width, state)
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
            advance(now, c, F[b + RATE], F, ends)  # a new flow took the place of one that ended: no rate changes
            settle(done, ends, places, c)
            continue
        shared = I[c * stride + SHARED] > 0
        if n_dirty == 1 and shared and F[b + UPDATED] != now and ends[c] != INFINITE and _is_spare(c, flows, F):
            F[b + SOLVED_CAP] = F[b + CAP]
            continue
        F[b + SOLVED_FLOWS], F[b + SOLVED_CAP] = flows, F[b + CAP]
        if flows == 0.0:
            unlink(c, width, state)
            drop(done, ends, places, c)
            F[b + RATE], F[b + SERVED], ends[c] = 0.0, 0.0, INFINITE
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


def _solve(now: float, n_links: int, width: int, state: State) -> None:
    """New rates for all that these links can reach."""
    F, work, done, ends, places = state.F, state.work, state.done, state.ends, state.places
    both = component(n_links, width, state)
    n_links = both // 4294967296
    n_classes = both - n_links * 4294967296
    level = level_of_port(n_links, n_classes, state)
    if level < 0.0:
        fill(n_links, n_classes, width, state)
    first = len(state.LI) // LINK_INTS + 1
    for k in range(first, first + n_classes):
        c = work[k]
        b = c * CLASS_FLOATS
        total = F[b + TOTAL]
        if level >= 0.0:
            total = level * F[b + WEIGHT] * F[b + FLOWS]
        rate = total / F[b + FLOWS]
        F[b + SOLVED_FLOWS], F[b + SOLVED_CAP] = F[b + FLOWS], F[b + CAP]
        if rate == F[b + RATE] and F[b + UPDATED] != now and ends[c] != INFINITE:
            continue
        advance(now, c, rate, F, ends)
        i = places[c]  # most stay where they are, and then the call is dear
        end = ends[c]
        if (
            i <= 0
            or (i > 1 and ends[done[i >> 1]] > end)
            or (2 * i <= done[0] and ends[done[2 * i]] < end)
            or (2 * i < done[0] and ends[done[2 * i + 1]] < end)
        ):
            settle(done, ends, places, c)


def flush(now: float, dirty: Array, n_dirty: int, width: int, state: State) -> float:
    """Solve anew for what changed (classes, or links as -1 - link); returns the time of the next completion."""
    state.work[0] += 1
    n_links = _seed(now, dirty, n_dirty, width, state)
    if n_links > 0:
        _solve(now, n_links, width, state)
    if state.done[0] > 0:
        return state.ends[state.done[1]]  # type: ignore[no-any-return]
    return INFINITE


def play(until: float, starts: FlowArrivals, dirty: Array, due: Array, width: int, state: State) -> int:
    """Let flows start, share and end until a given time; then none is left. Returns how many have ended by then.

    Class ``i`` has the ``i``-th start, and nothing before it. Says of each when it ended (``INFINITE``: it has not),
    and what was left to carry; and in which order they ended.
    """
    F, begin, end, left, n = state.F, starts.begin, starts.end, starts.left, len(starts.begin)
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
                dirty[k], starts.order[ended], end[c], left[c] = c, c, now, 0.0
                F[c * CLASS_FLOATS + FLOWS], F[c * CLASS_FLOATS + TOP] = 0.0, INFINITE
                ended += 1
        while started < n and begin[started] <= now:
            F[started * CLASS_FLOATS + FLOWS], F[started * CLASS_FLOATS + TOP] = starts.flows[started], left[started]
            dirty[n_dirty] = started
            n_dirty += 1
            started += 1
        next_s = flush(now, dirty, n_dirty, width, state)
    if ended < started:
        _break_off(until, started, starts, dirty, width, state)
    return ended


def _break_off(now: float, started: int, starts: FlowArrivals, dirty: Array, width: int, state: State) -> None:
    """End all flows, and say what was left of them."""
    F, n_dirty = state.F, 0
    for c in range(started):
        b = c * CLASS_FLOATS
        if F[b + FLOWS] > 0.0:
            left = starts.left[c] - F[b + SERVED] - F[b + RATE] * (now - F[b + UPDATED])
            starts.left[c] = left if left > 0.0 else 0.0
            F[b + FLOWS], F[b + TOP] = 0.0, INFINITE
            dirty[n_dirty] = c
            n_dirty += 1
    flush(now, dirty, n_dirty, width, state)


PLACES = len(State._fields) + 2 + 2  # where each array begins, and where the last one of each kind ends


def _unpacked(floats: Array, ints: Array) -> State:
    return State(
        floats[: ints[1]], floats[ints[1] : ints[2]], floats[ints[2] : ints[3]], floats[ints[3] : ints[4]],
        floats[ints[4] : ints[5]], ints[ints[6] : ints[7]], ints[ints[7] : ints[8]], ints[ints[8] : ints[9]],
        ints[ints[9] : ints[10]], ints[ints[10] : ints[11]], ints[ints[11] : ints[12]],
    )  # fmt: skip


_CALLED: tuple[Callable[..., Any], ...] = (
    heap.push, heap.pop, advance, settle, drop, component, level_of_port, freeze, heaped, fill, _look, _link, unlink,
    _is_spare, _seed, _solve, _unpacked, flush, take_due, play, _break_off,
)  # fmt: skip


@functools.cache
def compiled() -> tuple[Callable[..., float], Callable[..., int], Callable[..., int]]:
    """``flush``, ``take_due`` and ``play`` compiled; ``ImportError`` without numba.

    They take two arrays, for each more costs time in every call: all floats, and all integers, dirty and due classes
    among them (see ``store``).
    """
    import numba
    from numba.extending import register_jitable

    for helper in _CALLED:
        register_jitable(helper)
    sources = _fingerprint()

    def flush_packed(now: float, n_dirty: int, width: int, floats: Array, ints: Array) -> float:
        if sources < 0:  # never; but so it is part of what the compiled code is kept under
            return INFINITE
        return flush(now, ints[ints[12] : ints[13]], n_dirty, width, _unpacked(floats, ints))

    def take_due_packed(now: float, floats: Array, ints: Array) -> int:
        if sources < 0:
            return 0
        return take_due(now, ints[ints[13] : ints[14]], _unpacked(floats, ints))

    def play_packed(until: float, n: int, width: int, times: Array, order: Array, floats: Array, ints: Array) -> int:
        if sources < 0:
            return 0
        starts = FlowArrivals(times[:n], times[n : 2 * n], times[2 * n : 3 * n], times[3 * n :], order)
        return play(until, starts, ints[ints[12] : ints[13]], ints[ints[13] : ints[14]], width, _unpacked(floats, ints))

    flush_compiled, take_due_compiled, play_compiled = (
        numba.njit(cache=True)(each) for each in (flush_packed, take_due_packed, play_packed)
    )
    return flush_compiled, take_due_compiled, play_compiled


def _fingerprint() -> int:
    """Of all that is compiled. numba looks at one file only to see whether what it has kept is still good."""
    files = sorted({inspect.getfile(helper) for helper in (*_CALLED, State)})
    return zlib.crc32(b"".join(Path(file).read_bytes() for file in files))
