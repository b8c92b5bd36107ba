"""Samples of cumulative counters, several sources of which share a table: which one follows which."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]


def successive(sources: NDArray[Any]) -> tuple[Rows, Rows]:
    """Return the rows that have an earlier one of the same source, and for each of them that row.

    ``sources``: of each row, in the order of time.
    """
    order = np.argsort(sources, kind="stable")
    same = sources[order[1:]] == sources[order[:-1]]
    return order[1:][same], order[:-1][same]


def counted(counters: NDArray[np.float64], rows: Rows, before: Rows) -> NDArray[np.float64]:
    """Return what cumulative counters, a row each, have counted since the ones ``before``; see ``successive``.

    A counter that fell had begun anew, as those of simulated links do at a restart.
    """
    found = counters.copy()
    change = counters[rows] - counters[before]
    found[rows] = np.where(change >= 0, change, counters[rows])
    return found
