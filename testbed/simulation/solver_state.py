"""The arrays of ``kernels``, for the flow network: lists, or two numpy arrays that compiled kernels take.

Python reads and writes the numpy arrays through memory views: an access takes half the time of numpy's.
"""

from __future__ import annotations

import math
from array import array
from typing import Any

from testbed.numba_cache import compiled_by_numba
from testbed.simulation import kernels as k


def _as_numpy(values: array[Any]) -> Any:
    """Return a numpy array of the same memory, which is quicker to make than one of a list."""
    import numpy as np

    return np.frombuffer(values, values.typecode)


_NAMES = k.State._fields
_IN_OUT = ("dirty", "due")  # integers, arguments and results of the kernels


class SolverState:
    """Links, and classes that may be added. From ``compile`` on, numba solves.

    ``F``, ``LF``, ``due`` are arrays of ``kernels`` for the caller to read and write.
    """

    def __init__(self, links: int, width: int) -> None:
        self._links = links
        self.width = width
        self.compiled = False
        self._capacity = self._used = 0
        self._flush: Any = None
        self._take_due: Any = None
        self._simulate: Any = None
        self.F: Any = []
        self.LF: Any = []
        self.due: Any = []
        self._arrays: dict[str, Any] = {name: [] for name in (*_NAMES, *_IN_OUT)}
        self._arrays |= {"LF": [0.0] * (links * k.LINK_FLOATS), "LI": [-1, 0, 0, 0] * links}
        for name, first in (
            ("done", 1),
            ("work", links + 1),
            ("keys", links + 1),
            ("shares", links + 1),
            ("items", links),
            ("dirty", links),
        ):
            self._arrays[name] = [0.0 if name in _NAMES[: k.FLOATS] else 0] * first
        self._grow(max(64, links))

    def add_class(self, path: tuple[int, ...], weight: float, cap: float) -> None:
        """Add a class; they are numbered in order. ``cap`` in bytes per second."""
        if self._used == self._capacity:
            self._grow(2 * self._capacity)
        base = self._used * k.CLASS_FLOATS
        self.F[base + k.WEIGHT], self.F[base + k.CAP] = float(weight), float(cap)
        self.F[base + k.TOP] = self._arrays["ends"][self._used] = math.inf
        at = self._used * (k.CLASS_INTS + 3 * self.width) + k.CLASS_INTS
        ints = self._arrays["I"]
        for hop, link in enumerate(path):
            ints[at + hop] = link
        self._used += 1

    def flush(self, now: float, dirty: list[int]) -> float:
        n_dirty = len(dirty)
        if not self.compiled:
            return k.flush(now, dirty, n_dirty, self.width, self._state)
        view = self._dirty_view
        if n_dirty == 1:
            view[0] = dirty[0]
        else:
            view[:n_dirty] = array("l", dirty)
        next_s: float = self._flush(now, n_dirty, self._float_address, self._int_address)
        return next_s

    def next_s(self) -> float:
        state = self._state
        next_s: float = state.ends[state.done[1]] if state.done[0] else math.inf
        return next_s

    def active(self, link: int) -> int:
        """Return how many classes are active on a link, as last solved."""
        count: int = self._state.LI[link * k.LINK_INTS + k.COUNT]
        return count

    def remove_from_lists(self, c: int) -> None:
        """Remove class ``c``, whose flows have all ended, from the lists of its links."""
        state = self._state
        base = c * k.CLASS_FLOATS
        k.unlink(c, self.width, state)
        state.F[base + k.RATE] = state.F[base + k.SERVED] = 0.0
        state.ends[c] = math.inf

    def take_due(self, now: float) -> int:
        """See ``kernels.take_due``; the classes are in ``self.due``."""
        if not self.compiled:
            return k.take_due(now, self.due, self._state)
        count: int = self._take_due(now, self._float_address, self._int_address)
        return count

    def simulate_flows(self, flows: k.FlowArrivals, until_s: float) -> tuple[k.FlowArrivals, int]:
        """See ``kernels.simulate_flows``. Takes and returns lists."""
        if not self.compiled:
            dirty = self._arrays["dirty"]
            due = self._arrays["due"]
            return flows, k.simulate_flows(until_s, flows, dirty, due, self.width, self._state)
        n = len(flows.order)
        order = array("l", flows.order)
        times = array("d", flows.begin + flows.left + flows.flows + flows.end)
        ended: int = self._simulate(
            until_s, n, self.width, _as_numpy(times), _as_numpy(order), self._floats, self._ints
        )
        left = times[n : 2 * n].tolist()
        end = times[3 * n :].tolist()
        return k.FlowArrivals(flows.begin, left, flows.flows, end, order.tolist()), ended

    def _grow(self, capacity: int) -> None:
        """Make room for ``capacity`` classes."""
        stride = k.CLASS_INTS + 3 * self.width
        new, self._capacity = capacity - self._capacity, capacity
        more: dict[str, list[Any]] = {name: [0.0 if name in _NAMES[: k.FLOATS] else 0] * new for name in self._arrays}
        more |= {"F": [0.0] * (new * k.CLASS_FLOATS), "LF": [], "LI": []}
        more["I"] = ([0] * k.CLASS_INTS + [-1] * (stride - k.CLASS_INTS)) * new
        self._use({name: [*values, *more[name]] for name, values in self._arrays.items()})

    def widen(self, width: int) -> None:
        """Make room for paths of ``width`` links."""
        old = self.width
        stride = k.CLASS_INTS + 3 * self.width
        ints: list[int] = []
        rows = [int(each) for each in self._arrays["I"]]
        for at in range(0, len(rows), stride):
            fixed = rows[at : at + k.CLASS_INTS]
            groups = rows[at + k.CLASS_INTS : at + stride]
            path, after, before = (groups[i * old : (i + 1) * old] for i in range(3))
            more = [-1] * (width - old)
            ints += [*fixed, *path, *more, *after, *more, *before, *more]
        self.width = width
        self._use({**self._arrays, "I": ints})

    def compile(self) -> None:
        """Solve with numba from now on."""
        self._flush, self._take_due, self._simulate = compiled_by_numba(k.compiled)
        self.compiled = True
        self._use(self._arrays)

    def _use(self, arrays: dict[str, Any]) -> None:
        self._arrays = self._packed(arrays) if self.compiled else arrays
        self.F, self.LF, self.due, self._dirty_view = (self._arrays[name] for name in ("F", "LF", "due", "dirty"))
        self._state = k.State(*(self._arrays[name] for name in _NAMES))

    def _packed(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """Copy all arrays into two; return views of their parts. Their offsets stand before the integers."""
        import numpy as np

        names = ([*_NAMES[: k.FLOATS]], [*_NAMES[k.FLOATS :], *_IN_OUT])
        begins = [0], [k.HEADER]
        for each, at in zip(names, begins, strict=True):
            for name in each:
                at.append(at[-1] + len(arrays[name]))
        self._floats, self._ints = np.zeros(begins[0][-1], np.float64), np.zeros(begins[1][-1], np.int64)
        self._ints[: k.HEADER] = [*begins[0], *begins[1], self.width]
        self._float_address = self._floats.ctypes.data
        self._int_address = self._ints.ctypes.data
        views: dict[str, Any] = {}
        for each, at, values in zip(names, begins, (self._floats, self._ints), strict=True):
            view: Any = memoryview(values)  # type: ignore[arg-type]
            for name, begin, end in zip(each, at, at[1:], strict=False):
                values[begin:end] = arrays[name]
                views[name] = view[begin:end]
        return views
