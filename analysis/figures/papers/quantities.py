"""Numbers of single runs that several figures from papers use."""

from __future__ import annotations

from typing import Any

from analysis.breakdown import per_round
from analysis.figures.papers.base import Sample
from analysis.measures import throughput, wan_bytes
from analysis.metrics import time_to_accuracy
from testbed.ids import data_center_of
from testbed.results.intervals import union
from testbed.units import parse_rate


def about(sample: Sample) -> dict[str, Any]:
    """Where a row belongs."""
    return {"study": sample.study, "variant": sample.variant, **sample.settings, "seed": sample.seed}


TARGET = 0.9  # of the times to accuracy; runs go on after it, so that curves have equal lengths


def usual(sample: Sample) -> dict[str, Any]:
    """The row that most figures begin with: place, result, throughput, traffic, time to 90 % accuracy."""
    run = sample.run
    result = run.result or {}
    return {
        **about(sample),
        "rounds": result.get("rounds"),
        "accuracy": result.get("accuracy"),
        "round_time_s": result.get("round_time_s"),
        "training_s": result.get("training_s"),
        "throughput": throughput(run),
        "wan_bytes": wan_bytes(run),
        "time_to_target_s": time_to_accuracy(run, TARGET),
        "parameters_sha256": result.get("parameters_sha256"),
    }


def compute_ratio(sample: Sample) -> dict[str, float]:
    """Share of its round time in which each worker computes."""
    rounds = per_round(sample.run.tables)
    sums = rounds.assign(span=rounds["t_s"] - rounds["t0_s"]).groupby("node")[["compute_s", "span"]].sum()
    return {str(node): float(row["compute_s"] / row["span"]) for node, row in sums.iterrows()}


def computing_share(sample: Sample) -> float:
    """Share of training time in which a worker computes, mean over workers; time between rounds counts too."""
    computes, rounds = sample.run.tables["computes"], sample.run.tables["rounds"]
    length = float(rounds["t_s"].max() - rounds["t0_s"].min())
    steps = computes[computes["node"].isin(rounds["node"].unique())]
    shares = [union(group[["t0_s", "t_s"]].to_numpy()).total() / length for _, group in steps.groupby("node")]
    return sum(shares) / len(shares)


def wan_by_direction(sample: Sample) -> dict[tuple[str, str, int], int]:
    """Payload over the WAN by (data centre that is not central, ``push`` or ``value``, key), per round; mean."""
    run = sample.run
    transfers = run.tables["transfers"]
    moved = transfers[
        (transfers["tier"] == "wan") & (transfers["round"] >= 0) & transfers["message"].isin(("push", "value"))
    ]
    remote = moved["source"].where(moved["message"] == "push", moved["target"]).map(data_center_of)
    sums = moved.assign(site=remote).groupby(["site", "message", "key"])["payload_bytes"].agg(["sum", "count"])
    rows: Any = sums.reset_index().itertuples(index=False)
    return {(str(site), str(kind), int(key)): int(total // count) for site, kind, key, total, count in rows}


def rate_mbps(text: str) -> float:
    return parse_rate(text) / 1e6
