"""The numbers that papers report, from runs. Times are seconds since the start of training, evaluation left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.load import StoredRun
from testbed.results.summary import time_to_target_s

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean of ``count`` seeds and the half width of its 95 % confidence interval (Student); infinite for one seed."""

    value: float
    half_width: float
    count: int


def mean_of(values: Sequence[float]) -> Mean:
    """Return mean and confidence interval of independent values, e.g. one per seed. Raise ``ValueError`` if empty."""
    if not values:
        raise ValueError("no values")
    array = np.asarray(values, dtype=float)
    if len(array) == 1:
        return Mean(float(array[0]), math.inf, 1)
    from scipy.stats import t

    half = t.ppf(0.975, len(array) - 1) * array.std(ddof=1) / math.sqrt(len(array))
    return Mean(float(array.mean()), float(half), len(array))


def accuracy_curve(run: StoredRun) -> pd.DataFrame:
    """``time_s, wan_bytes, round, accuracy`` at every evaluation; ``wan_bytes``: tensors over the WAN by then."""
    import pandas as pd

    scores = run.tables["accuracy"].dropna(subset="accuracy").sort_values("snapshot_t_s")
    taken = scores["snapshot_t_s"].to_numpy()
    return pd.DataFrame({
        "time_s": taken - run.start_s,
        "wan_bytes": wan_bytes_until(run.tables["transfers"], taken),
        "round": scores["round"].to_numpy(),
        "accuracy": scores["accuracy"].to_numpy(),
    })  # fmt: skip


def wan_bytes_until(transfers: pd.DataFrame, moments: Any) -> Any:
    """Return the WAN payload of training rounds that had arrived by each of ``moments`` (array, run's clock)."""
    wan = wan_of_training(transfers).sort_values("t_s")
    sums = np.append(0, wan["payload_bytes"].to_numpy(dtype=np.int64).cumsum())
    return sums[np.searchsorted(wan["t_s"].to_numpy(), moments, side="right")]


def wan_of_training(transfers: pd.DataFrame) -> pd.DataFrame:
    """Return the transfers of tensors over the WAN in training rounds; messages of the scheduler have no key."""
    return transfers[(transfers["tier"] == "wan") & (transfers["round"] >= 0) & (transfers["key"] >= 0)]


def time_to_accuracy(run: StoredRun, target: float) -> float | None:
    """Return the seconds to the first evaluated snapshot that reached ``target``; ``None`` if none did."""
    return time_to_target_s(run.tables["accuracy"], target, run.start_s)


def speed_up(base_s: float | None, other_s: float | None) -> float | None:
    """Return how many times faster than the base; ``None`` if either did not reach the target."""
    return base_s / other_s if base_s and other_s else None


def relative_error(predicted: float, observed: float) -> float:
    """Return (predicted - observed) / observed; positive if the prediction is too slow."""
    return (predicted - observed) / observed


def utilisation(links: pd.DataFrame) -> pd.DataFrame:
    """``link, achieved_bps, configured_bps, utilisation``: means over time while the link was monitored."""
    known = links.dropna(subset=["achieved_bps", "configured_bps", "interval_s"])
    weighed = known[["achieved_bps", "configured_bps"]].mul(known["interval_s"], axis=0)
    sums = weighed.groupby(known["link"]).sum().div(known.groupby("link")["interval_s"].sum(), axis=0)
    return sums.assign(utilisation=sums["achieved_bps"] / sums["configured_bps"]).reset_index()


def simulation_errors(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """Return round times in s and the relative error of each scenario that was both simulated and emulated."""
    times: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        if run.result and run.result["round_time_s"]:
            of_scenario = times.setdefault(run.scenario_key, {})
            of_scenario.setdefault(run.plan["back_end"], []).append(run.result["round_time_s"])
    names = {run.scenario_key: run.plan["name"] for run in runs}
    rows = []
    for key, found in times.items():
        if {"simulate", "emulate"} <= found.keys():
            simulated, emulated = fmean(found["simulate"]), fmean(found["emulate"])
            rows.append({"name": names[key], "simulated_s": simulated, "emulated_s": emulated,
                         "error": relative_error(simulated, emulated)})  # fmt: skip
    return rows
