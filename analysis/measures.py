"""Measures of a run; ``None`` where it cannot say."""

from __future__ import annotations

import numpy as np

from analysis.breakdown import PARTS
from analysis.load import StoredRun
from analysis.metrics import wan_bytes_until, wan_of_training
from testbed.results import summary
from testbed.results.intervals import union

Value = float | None


def throughput(run: StoredRun) -> Value:
    """Return training samples per second while all workers train: the sum of each one's own rate; evaluation left out.

    Where workers do not wait for each other, the quick ones are done with their rounds long before the slow ones; what
    the slow ones then do alone must not count as the speed of all.
    """
    copies, rates = stands_for(run), []
    for node, rounds in run.tables["rounds"].groupby("node"):
        covered_s = union(rounds[["t0_s", "t_s"]].to_numpy()).total()
        rates.append(copies.get(str(node), 1) * float(rounds["samples"].sum()) / covered_s if covered_s else 0.0)
    return sum(rates) if rates else None


def stands_for(run: StoredRun) -> dict[str, int]:
    """Return how many equal nodes each node represents: more than one where a simulation has folded workers."""
    return summary.stands_for(run.tables["nodes"])


def wan_rate(run: StoredRun) -> Value:
    """Return the WAN payload in B/s while all workers train, until the first of them has completed its rounds."""
    rounds = run.tables["rounds"]
    if rounds.empty:
        return None
    end_s = float(rounds.groupby("node")["t_s"].max().min())
    moved = wan_bytes_until(run.tables["transfers"], [end_s])[0]
    start_s = summary.training_start_s(run.tables["training"])
    return float(moved) / (end_s - start_s) if end_s > start_s else None


def wan_bytes(run: StoredRun) -> float:
    """Return the bytes of tensors that crossed the WAN in training rounds; each counts once."""
    return float(wan_of_training(run.tables["transfers"])["payload_bytes"].sum())


def waiting(run: StoredRun) -> Value:
    """Return the share of the workers' round time in which they wait for others."""
    if not len(run.tables["rounds"]):
        return None
    workers = run.time_split.query("role == 'worker'")
    shares = workers["waiting_s"] / workers[[f"{part}_s" for part in PARTS]].sum(axis=1)
    return float(np.average(shares, weights=workers["node"].map(stands_for(run))))


def staleness(run: StoredRun) -> Value:
    """Return the mean number of updates of a key between the value of a gradient and its own update."""
    counts = run.tables["updates"]["staleness"].dropna()
    return float(counts.mean()) if len(counts) else None
