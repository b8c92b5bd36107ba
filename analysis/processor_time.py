"""Where the processor time of a real run went: what each node did while all were training, and what that took.

Looked at is the time from the end of the slowest worker's second round to the end of the fastest worker's last: at
their first steps workers load libraries, which takes seconds that no round waits for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from analysis.load import Run

if TYPE_CHECKING:
    import pandas as pd

SEGMENT_BYTES = 1448  # as ``testbed.simulation.host`` counts them
SHORTEST_S = 2.0  # nodes tell their processor time twice a second
_FIRST_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Spent:
    """By one node. ``messages``, ``size_bytes``, ``segments`` (on the WAN): sent and received; ``computed_s``: really,
    but for training steps."""

    node: str
    window_s: float
    messages: int
    size_bytes: float
    segments: float
    steps: int
    computed_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Beside:
    """``cpu_s`` of a machine's cores went to none of its nodes, while ``segments`` crossed the emulated WAN."""

    window_s: float
    segments: float
    cpu_s: float


def window_of(run: Run) -> tuple[float, float] | None:
    """Begin and end, on the run's clock; ``None`` where the run is too short, or was simulated."""
    ends = [np.sort(group.to_numpy()) for _, group in run.tables["rounds"].groupby("node")["t_s"]]
    if run.plan["back_end"] == "simulate" or not ends or min(map(len, ends)) <= _FIRST_ROUNDS:
        return None
    begin_s, end_s = max(float(each[_FIRST_ROUNDS - 1]) for each in ends), min(float(each[-1]) for each in ends)
    return (begin_s, end_s) if end_s - begin_s >= SHORTEST_S else None


def spent(run: Run) -> list[Spent]:
    """Every node that told its processor time all through the window; none without a window."""
    window = window_of(run)
    if window is None:
        return []
    transfers, computes = (_within(run.tables[name], window) for name in ("transfers", "computes"))
    found = []
    for node, samples in run.tables["processes"].groupby("node"):
        cpu_s = _between(samples, window)
        if cpu_s is not None:
            mine = transfers[(transfers["source"] == node) | (transfers["target"] == node)]
            work = computes[computes["node"] == node]
            steps = work["work"] == "step"
            found.append(Spent(
                str(node), window[1] - window[0], len(mine), float(_size_bytes(mine).sum()), _segments(mine),
                int(steps.sum()), float(work[~steps]["real_s"].sum()), cpu_s,
            ))  # fmt: skip
    return found


def beside(run: Run) -> Beside | None:
    """Return the machine's processor time beside the nodes' own; ``None`` where it was not measured."""
    window, nodes = window_of(run), spent(run)
    if window is None or not nodes or run.plan["back_end"] != "emulate":
        return None
    busy = _within(run.tables["machine"], window)["busy_share"]
    if not len(busy):
        return None
    window_s = window[1] - window[0]
    cpu_s = float(busy.mean()) * cores_of(run) * window_s - sum(node.cpu_s for node in nodes)
    return Beside(window_s, _segments(_within(run.tables["transfers"], window)), max(0.0, cpu_s))


def cores_of(run: Run) -> int:
    """Those that the run could use."""
    machine = run.manifest["machine"]
    return int(machine.get("usable_cores") or machine["cores"])


def _within(table: pd.DataFrame, window: tuple[float, float]) -> pd.DataFrame:
    return table[(table["t_s"] > window[0]) & (table["t_s"] <= window[1])]


def _size_bytes(transfers: pd.DataFrame) -> pd.Series[int]:
    return transfers["payload_bytes"] + transfers["header_bytes"]


def _segments(transfers: pd.DataFrame) -> float:
    return float(np.ceil(_size_bytes(transfers[transfers["tier"] == "wan"]) / SEGMENT_BYTES).sum())


def _between(samples: pd.DataFrame, window: tuple[float, float]) -> float | None:
    """Processor time in the window, between samples in proportion; ``None`` where they do not cover it."""
    t, cpu_s = samples["t_s"].to_numpy(), samples["cpu_s"].to_numpy()
    if t.min() > window[0] or t.max() < window[1]:
        return None
    begin_s, end_s = np.interp(window, t, cpu_s)
    return float(end_s - begin_s)
