"""Every measure of a run by name, with its unit and meaning; one row per run.

frame = measured(load(paths), target=0.9)      # columns: run, technique, back_end, seed, and one per measure
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.breakdown import PARTS, per_round
from analysis.identity import technique_of
from analysis.load import StoredRun
from analysis.metrics import time_to_accuracy, utilisation, wan_bytes_until, wan_of_training
from testbed.results import summary
from testbed.results.intervals import union

if TYPE_CHECKING:
    import pandas as pd

Value = float | None


@dataclass(frozen=True, slots=True)
class Measure:
    """``of(run)`` gives the value in ``unit``, or ``None`` where the run cannot say."""

    unit: str
    meaning: str
    of: Callable[[StoredRun], Value]


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
    return float(moved) / (end_s - run.start_s) if end_s > run.start_s else None


def wan_bytes(run: StoredRun) -> Value:
    """Return the bytes of tensors that crossed the WAN in training rounds; each counts once."""
    return float(wan_of_training(run.tables["transfers"])["payload_bytes"].sum())


def wan_bytes_per_round(run: StoredRun) -> Value:
    rounds = run.tables["rounds"]
    count = rounds["round"].nunique()  # of a run that was resumed, not all of its numbers
    moved = wan_bytes(run)
    return moved / count if count and moved is not None else None


def busiest_link(run: StoredRun) -> Value:
    """Return the mean utilisation of the WAN link that was used most."""
    links = utilisation(run.tables["links"])
    return float(links["utilisation"].max()) if len(links) else None


def compute_share(run: StoredRun) -> Value:
    """Share of the training workers' round time in which they compute: the utilisation of what is expensive."""
    rounds = per_round(run.tables)
    copies = rounds["node"].map(stands_for(run))
    spans = float(((rounds["t_s"] - rounds["t0_s"]) * copies).sum())
    return float((rounds["compute_s"] * copies).sum()) / spans if spans else None


def waiting(run: StoredRun) -> Value:
    if not len(run.tables["rounds"]):
        return None
    workers = run.time_split.query("role == 'worker'")
    shares = workers["waiting_s"] / workers[[f"{part}_s" for part in PARTS]].sum(axis=1)
    return float(np.average(shares, weights=workers["node"].map(stands_for(run))))


def staleness(run: StoredRun) -> Value:
    """Return the mean number of updates of a key between the value of a gradient and its own update."""
    counts = run.tables["updates"]["staleness"].dropna()
    return float(counts.mean()) if len(counts) else None


def critical(part: str) -> Callable[[StoredRun], Value]:
    """Return the mean seconds per round that ``part`` has on the critical path of the slowest worker of each round."""

    def of(run: StoredRun) -> Value:
        rounds = per_round(run.tables)
        if rounds.empty:
            return None
        length = rounds["t_s"] - rounds["t0_s"]
        return float(rounds.loc[length.groupby(rounds["round"]).idxmax(), f"{part}_s"].mean())

    return of


def _result(name: str) -> Callable[[StoredRun], Value]:
    return lambda run: None if run.result is None else run.result[name]


MEASURES: dict[str, Measure] = {
    "rounds": Measure("rounds", "completed by every worker that trains", _result("rounds")),
    "accuracy": Measure("1", "share of the test set classified correctly, last evaluation", _result("accuracy")),
    "round_time_s": Measure("s", "mean length of a round; evaluation left out", _result("round_time_s")),
    "throughput": Measure("samples/s", "training samples per second while all workers train", throughput),
    "wan_bytes": Measure("B", "tensors sent over the WAN in training rounds", wan_bytes),
    "wan_bytes_per_round": Measure("B", "the same, divided by the number of rounds", wan_bytes_per_round),
    "wan_rate": Measure("B/s", "tensors sent over the WAN per second while all workers train", wan_rate),
    "busiest_link": Measure("1", "mean utilisation of the WAN link used most", busiest_link),
    "compute_share": Measure("1", "share of the workers' round time in which they compute", compute_share),
    "waiting_share": Measure("1", "share of the workers' round time in which they wait for others", waiting),
    "staleness": Measure("updates", "mean age of the values that a gradient was computed from", staleness),
    **{f"critical_{part}_s": Measure("s", f"{part} on the critical path of a round's slowest worker", critical(part))
       for part in PARTS},
}  # fmt: skip


def measured(
    runs: Iterable[StoredRun], target: float | None = None, names: Sequence[str] = tuple(MEASURES)
) -> pd.DataFrame:
    """Return one row per run; with a ``target``, also ``time_to_accuracy_s`` (missing where it was never reached)."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for run in runs:
        row: dict[str, Any] = {"run": run.name, "technique": technique_of(run.plan), "back_end": run.plan["back_end"],
                               "seed": run.plan["seed"]}  # fmt: skip
        row |= {name: MEASURES[name].of(run) for name in names}
        if target is not None:
            row["time_to_accuracy_s"] = time_to_accuracy(run, target)
        rows.append(row)
    return pd.DataFrame(rows)
