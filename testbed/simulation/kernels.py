"""Weighted max-min fair sharing as functions on flat arrays: one source, run by Python on lists or compiled by numba.

Both execute the same statements in the same order, so they give the same bits. ``layout`` describes the arrays,
``flows`` the model, ``filling`` the algorithm. ``flush`` solves after changes; it skips whatever cannot have changed:

* a class on links of its own has the rate min(CAP, OWN / flows), whatever the others do;
* a flow that takes the place of one that has just ended in its class changes no rate;
* a cap that limits a class neither before nor after its change alters nothing (``_cap_is_slack``).
"""

# ruff: noqa: N803, N806, E741, PLR1730  (arrays have short names; min and max are slow here)

from __future__ import annotations

import functools
import inspect
import zlib
from collections.abc import Callable
from ctypes import PYFUNCTYPE, c_double, c_long, c_void_p
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


def _count_shared(c: int, width: int, state: State) -> None:
    """Recount the links that class ``c`` shares (SHARED), and find what its other links allow it (OWN)."""
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
    """Add class ``c`` to the lists of its links."""
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
            _count_shared(head // HOPS, width, state)
    _count_shared(c, width, state)


def unlink(c: int, width: int, state: State) -> None:
    """Remove class ``c`` from the lists of its links."""
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
            _count_shared(LI[link * LINK_INTS + HEAD] // HOPS, width, state)


def _cap_is_slack(c: int, flows: float, F: Array) -> bool:
    """Whether nothing has changed in class ``c`` but its cap, which limits it neither before nor after."""
    b = c * CLASS_FLOATS
    rate = F[b + RATE] * (1.0 + SPARE)
    return flows > 0.0 and flows == F[b + SOLVED_FLOWS] and rate < F[b + CAP] and rate < F[b + SOLVED_CAP]


def _apply_changes(now: float, dirty: Array, n_dirty: int, width: int, state: State) -> int:  # noqa: PLR0912, PLR0915
    """Link classes that became active, unlink those that ended, update those that share nothing. Write the links that
    need a solve to ``work`` and return how many these are."""
    F, I, LI, work = state.F, state.I, state.LI, state.work
    done, ends, places = state.done, state.ends, state.places
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
    """Compute new rates for the component of the first ``n_links`` links of ``work``."""
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
    F, begin, end, left, n = state.F, flows.begin, flows.end, flows.left, len(flows.begin)
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
                dirty[k], flows.order[ended], end[c], left[c] = c, c, now, 0.0
                F[c * CLASS_FLOATS + FLOWS], F[c * CLASS_FLOATS + TOP] = 0.0, INFINITE
                ended += 1
        while started < n and begin[started] <= now:
            F[started * CLASS_FLOATS + FLOWS], F[started * CLASS_FLOATS + TOP] = flows.flows[started], left[started]
            dirty[n_dirty] = started
            n_dirty += 1
            started += 1
        next_s = flush(now, dirty, n_dirty, width, state)
    if ended < started:
        _remove_flows(until, started, flows, dirty, width, state)
    return ended


def _remove_flows(now: float, started: int, flows: FlowArrivals, dirty: Array, width: int, state: State) -> None:
    """Remove all flows, and set what they had left to carry."""
    F, n_dirty = state.F, 0
    for c in range(started):
        b = c * CLASS_FLOATS
        if F[b + FLOWS] > 0.0:
            left = flows.left[c] - F[b + SERVED] - F[b + RATE] * (now - F[b + UPDATED])
            flows.left[c] = left if left > 0.0 else 0.0
            F[b + FLOWS], F[b + TOP] = 0.0, INFINITE
            dirty[n_dirty] = c
            n_dirty += 1
    flush(now, dirty, n_dirty, width, state)


# Before the integers stand the offsets of all arrays (State's, ``dirty`` and ``due``), the end of each kind, and the
# width of paths.
WIDTH = len(State._fields) + 2 + 2
HEADER = WIDTH + 1


def _unpacked(floats: Array, ints: Array) -> State:
    return State(
        floats[: ints[1]], floats[ints[1] : ints[2]], floats[ints[2] : ints[3]], floats[ints[3] : ints[4]],
        floats[ints[4] : ints[5]], ints[ints[6] : ints[7]], ints[ints[7] : ints[8]], ints[ints[8] : ints[9]],
        ints[ints[9] : ints[10]], ints[ints[10] : ints[11]], ints[ints[11] : ints[12]],
    )  # fmt: skip


_CALLED: tuple[Callable[..., Any], ...] = (
    heap.push, heap.pop, advance, settle, drop, component, level_of_port, freeze, heaped, fill, _count_shared, _link,
    unlink, _cap_is_slack, _apply_changes, _solve, _unpacked, flush, take_due, simulate_flows, _remove_flows,
)  # fmt: skip


_COMPILED: list[Any] = []  # what owns the code behind the addresses


@functools.cache
def compiled() -> tuple[Callable[..., float], Callable[..., int], Callable[..., int]]:
    """Return ``flush``, ``take_due`` and ``simulate_flows`` compiled. Raise ``ImportError`` without numba.

    The first two are C functions of (now, n_dirty, floats, integers) and of (now, floats, integers), where the last two
    are the addresses of two arrays, ``dirty`` and ``due`` among them (see ``solver_state``). numba's own way to call a
    function, which ``simulate_flows`` takes, looks into every array for 3 us: a simulated message has three calls.
    """
    import numba
    from numba import carray, types
    from numba.extending import register_jitable

    for helper in _CALLED:
        register_jitable(helper)
    sources = _fingerprint()

    def flush_at(now: float, n_dirty: int, float_address: Any, int_address: Any) -> float:
        if sources < 0:  # never true; makes the fingerprint part of what numba caches the code under
            return INFINITE
        header = carray(int_address, HEADER)
        floats, ints = carray(float_address, header[5]), carray(int_address, header[14])
        return flush(now, ints[ints[12] : ints[13]], n_dirty, header[WIDTH], _unpacked(floats, ints))

    def take_due_at(now: float, float_address: Any, int_address: Any) -> int:
        if sources < 0:
            return 0
        header = carray(int_address, HEADER)
        floats, ints = carray(float_address, header[5]), carray(int_address, header[14])
        return take_due(now, ints[ints[13] : ints[14]], _unpacked(floats, ints))

    def simulate_packed(
        until: float, n: int, width: int, times: Array, order: Array, floats: Array, ints: Array
    ) -> int:
        if sources < 0:
            return 0
        flows = FlowArrivals(times[:n], times[n : 2 * n], times[2 * n : 3 * n], times[3 * n :], order)
        dirty, due = ints[ints[12] : ints[13]], ints[ints[13] : ints[14]]
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


def _fingerprint() -> int:
    """Checksum of the sources of all that is compiled. numba itself checks only the file of the compiled function."""
    files = sorted({inspect.getfile(helper) for helper in (*_CALLED, State)})
    return zlib.crc32(b"".join(Path(file).read_bytes() for file in files))
