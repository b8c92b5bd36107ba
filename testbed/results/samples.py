"""Differences between successive samples of cumulative counters, in a table with samples of several sources."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]


def successive(sources: NDArray[Any]) -> tuple[Rows, Rows]:
    """Return all rows with an earlier row of the same source, and the previous row of that source for each.

    ``sources`` has the source of each row, in the order of time.
    """
    order = np.argsort(sources, kind="stable")
    same = sources[order[1:]] == sources[order[:-1]]
    return order[1:][same], order[:-1][same]


def counted(counters: NDArray[np.float64], rows: Rows, before: Rows) -> NDArray[np.float64]:
    """Return the increase of cumulative counters from the rows ``before`` to ``rows``; see ``successive``.

    A counter that fell has begun anew at 0, as those of simulated links do at a restart.
    """
    found = counters.copy()
    change = counters[rows] - counters[before]
    found[rows] = np.where(change >= 0, change, counters[rows])
    return found
