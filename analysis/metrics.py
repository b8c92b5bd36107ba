"""The measures that papers report, from runs. Times are seconds since the start of training, without evaluation.

A measure that a run does not have is ``None``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.load import StoredRun
from testbed.results import summary
from testbed.results.pipelines import rounds_of_replicas
from testbed.target import Target

if TYPE_CHECKING:
    import pandas as pd


def accuracy_curve(run: StoredRun) -> pd.DataFrame:
    """Return ``time_s, wan_bytes, samples, round, accuracy, loss`` of every evaluation.

    ``wan_bytes`` is the payload that had crossed the WAN by then. ``samples`` counts those of all workers in all rounds
    that had ended.
    """
    import pandas as pd

    scores = run.tables["accuracy"].dropna(subset="accuracy").sort_values("snapshot_t_s")
    taken = scores["snapshot_t_s"].to_numpy()
    return pd.DataFrame(
        {
            "time_s": taken - run.start_s,
            "wan_bytes": wan_bytes_until(run.tables["transfers"], taken),
            "samples": samples_until(run, taken),
            "round": scores["round"].to_numpy(),
            "accuracy": scores["accuracy"].to_numpy(),
            "loss": scores["loss"].to_numpy(),
        }
    )


def samples_until(run: StoredRun, moments: Any) -> Any:
    """Return the training samples of the rounds that had ended by each of ``moments`` (array, run's clock)."""
    rounds = run.tables["rounds"].sort_values("t_s")
    counts = rounds["samples"] * rounds["node"].map(stands_for(run))
    sums = np.append(0, counts.to_numpy().cumsum())
    return sums[np.searchsorted(rounds["t_s"].to_numpy(), moments, side="right")]


def wan_bytes_until(transfers: pd.DataFrame, moments: Any) -> Any:
    """Return the WAN payload of training rounds that had arrived by each of ``moments`` (array, run's clock)."""
    wan = wan_of_training(transfers).sort_values("t_s")
    sums = np.append(0, wan["payload_bytes"].to_numpy(dtype=np.int64).cumsum())
    return sums[np.searchsorted(wan["t_s"].to_numpy(), moments, side="right")]


def wan_of_training(transfers: pd.DataFrame) -> pd.DataFrame:
    """Return the transfers of tensors over the WAN in training rounds; messages of the scheduler have no key."""
    return transfers[(transfers["tier"] == "wan") & (transfers["round"] >= 0) & (transfers["key"] >= 0)]


def time_to(run: StoredRun, target: Target) -> float | None:
    """Return the seconds to the first of two snapshots in a row that meet ``target``; ``None`` if there are none."""
    return summary.time_to_target_s(run.tables["accuracy"], target, run.start_s)


def speed_up(base_s: float | None, other_s: float | None) -> float | None:
    """Return how many times faster than the base; ``None`` if either did not reach the target."""
    return base_s / other_s if base_s and other_s else None


def relative_error(predicted: float, observed: float) -> float:
    """Return (predicted - observed) / observed; positive if the prediction is too slow."""
    return (predicted - observed) / observed


def utilisation(links: pd.DataFrame, begin_s: float = -math.inf, end_s: float = math.inf) -> pd.DataFrame:
    """Return ``link, achieved_bps, configured_bps, utilisation``: means over the time from ``begin_s`` to ``end_s``.

    Each sample is weighted by the part of its interval within this time.
    """
    known = links.dropna(subset=["achieved_bps", "configured_bps", "interval_s"])
    within_s = known["t_s"].clip(upper=end_s) - (known["t_s"] - known["interval_s"]).clip(lower=begin_s)
    known, within_s = known[within_s > 0], within_s[within_s > 0]
    weighed = known[["achieved_bps", "configured_bps"]].mul(within_s, axis=0)
    sums = weighed.groupby(known["link"]).sum().div(within_s.groupby(known["link"]).sum(), axis=0)
    return sums.assign(utilisation=sums["achieved_bps"] / sums["configured_bps"]).reset_index()


def simulation_errors(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """Return the round times (s) and the relative error of each scenario that was both simulated and emulated.

    ``network`` is the network model of the simulation. A scenario simulated by packets and by flows has a row for each.
    """
    emulated: dict[str, list[float]] = {}
    simulated: dict[tuple[str, str], list[float]] = {}
    names: dict[str, str] = {}
    for run in runs:
        if not run.result or not run.result["round_time_s"]:
            continue
        names[run.scenario_key] = run.plan["name"]
        round_s = run.result["round_time_s"]
        if run.facilities.shapes_links and not run.facilities.in_virtual_time:
            emulated.setdefault(run.scenario_key, []).append(round_s)
        elif not run.facilities.has_processes:
            simulated.setdefault((run.scenario_key, run.plan["simulation"]["network"]), []).append(round_s)
    rows = []
    for (key, network), found in simulated.items():
        if key in emulated:
            simulated_s = fmean(found)
            emulated_s = fmean(emulated[key])
            rows.append(
                {
                    "name": names[key],
                    "network": network,
                    "simulated_s": simulated_s,
                    "emulated_s": emulated_s,
                    "error": relative_error(simulated_s, emulated_s),
                }
            )
    return rows


def throughput(run: StoredRun) -> float | None:
    """Return training samples per second of all workers (``summary.samples_per_s``)."""
    rounds = rounds_of_replicas(run.tables["rounds"], run.plan)
    return summary.samples_per_s(rounds, run.tables["faults"], stands_for(run))


def stands_for(run: StoredRun) -> dict[str, int]:
    """Return how many equal nodes each node represents: more than one if the simulation folded workers."""
    return summary.stands_for(run.tables["nodes"])


def wan_rate(run: StoredRun) -> float | None:
    """Return the WAN payload in bytes/s while all workers train: until the first worker has completed its rounds."""
    rounds = run.tables["rounds"]
    if rounds.empty:
        return None
    end_s = float(rounds.groupby("node")["t_s"].max().min())
    moved = wan_bytes_until(run.tables["transfers"], [end_s])[0]
    start_s = summary.training_start_s(run.tables["training"])
    return float(moved) / (end_s - start_s) if end_s > start_s else None


def wan_bytes(run: StoredRun) -> float:
    """Return the payload bytes of tensors that crossed the WAN in training rounds."""
    return float(wan_of_training(run.tables["transfers"])["payload_bytes"].sum())


def waiting(run: StoredRun) -> float | None:
    """Return the share of the workers' round time that they spend waiting for others."""
    if not len(run.tables["rounds"]) or not run.logs_work:
        return None
    workers = run.time_split.query("role == 'worker'")
    shares = workers["waiting_s"] / workers.filter(regex="_s$").sum(axis=1)
    return float(np.average(shares, weights=workers["node"].map(stands_for(run))))
