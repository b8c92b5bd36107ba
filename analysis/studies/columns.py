"""Columns that several studies derive from a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from analysis.metrics import accuracy_curve, stands_for
from analysis.studies.study import StudyRun
from testbed.costs import CODING
from testbed.ids import data_center_of
from testbed.results.intervals import union
from testbed.units import parse_rate

Column = Callable[[StudyRun], Any]


def setting(path: str, read: Callable[[str], Any] = float, default: str | None = None) -> Column:
    """Return the value of a setting of the grid; ``default`` (or None) where a sweep does not vary it."""

    def of(each: StudyRun) -> Any:
        text = each.settings.get(path, default)
        return None if text is None else read(text)

    return of


def accuracy(each: StudyRun) -> Any:
    """Return a curve: seconds, WAN bytes, round and accuracy of every evaluation."""
    names = {"time_s": "at_s", "wan_bytes": "at_bytes", "round": "at_round", "accuracy": "at_accuracy"}
    return accuracy_curve(each.run).rename(columns=names)


def mbps(text: str) -> float:
    return parse_rate(text) / 1e6


def samples(each: StudyRun) -> float:
    """Return the number of training samples of all workers."""
    rounds = each.run.tables["rounds"]
    return float((rounds["samples"] * rounds["node"].map(stands_for(each.run))).sum())


def warm_rounds(each: StudyRun, first: int = 1) -> Any:
    """Length of each round from ``first`` on, at the slowest worker; the first ones also set connections up."""
    rounds = each.run.tables["rounds"]
    lengths = rounds.assign(length=rounds["t_s"] - rounds["t0_s"]).groupby("round")["length"].max()
    return lengths[lengths.index >= first]


def periods(each: StudyRun) -> Any:
    """Return the seconds between the starts of rounds, without the first, at the worker with most rounds."""
    rounds = each.run.tables["rounds"]
    begins = max((group["t0_s"].sort_values() for _, group in rounds.groupby("node")), key=len)
    return begins.iloc[1:].diff().dropna()


def compute_ratio(each: StudyRun) -> dict[str, float]:
    """Return the share of its round time in which each worker itself computes, codecs left out."""
    computes = each.run.tables["computes"]
    steps = computes[~computes["work"].isin(CODING)]
    ratios = {}
    for node, rounds in each.run.tables["rounds"].groupby("node"):
        inside, own = (union(rows[["t0_s", "t_s"]].to_numpy()) for rows in (rounds, steps[steps["node"] == node]))
        ratios[str(node)] = float(own.intersection(inside).total() / inside.total())
    return ratios


def ratio_spread(each: StudyRun) -> float:
    """Return the difference of the largest and the smallest value of ``compute_ratio``."""
    ratios = compute_ratio(each).values()
    return max(ratios) - min(ratios)


def computing_share(each: StudyRun) -> float:
    """Share of training time in which a worker computes, mean over workers; time between rounds counts too."""
    computes, rounds = each.run.tables["computes"], each.run.tables["rounds"]
    length = float(rounds["t_s"].max() - rounds["t0_s"].min())
    steps = computes[computes["node"].isin(rounds["node"].unique())]
    copies, workers, total = stands_for(each.run), 0, 0.0
    for node, group in steps.groupby("node"):
        count = copies.get(str(node), 1)
        total += count * (union(group[["t0_s", "t_s"]].to_numpy()).total() / length)
        workers += count
    return total / workers


def wan_by_direction(each: StudyRun) -> dict[tuple[str, str, int], int]:
    """Payload over the WAN by (data centre that is not central, ``push`` or ``value``, key), per round; mean."""
    transfers = each.run.tables["transfers"]
    wan = (transfers["tier"] == "wan") & (transfers["round"] >= 0)
    moved = transfers[wan & transfers["message"].isin(("push", "value"))]
    remote = moved["source"].where(moved["message"] == "push", moved["target"]).map(data_center_of)
    sums = moved.assign(site=remote).groupby(["site", "message", "key"])["payload_bytes"].agg(["sum", "count"])
    rows: Any = sums.reset_index().itertuples(index=False)
    return {(str(site), str(kind), int(key)): int(total // count) for site, kind, key, total, count in rows}


def final_loss(each: StudyRun) -> float | None:
    """Return the loss on the test set at the last evaluation; None of a run that has diverged before any."""
    losses = each.run.tables["accuracy"].sort_values("snapshot_t_s")["loss"]
    return None if losses.empty else float(losses.iloc[-1])


def updates_until_target(each: StudyRun) -> int | None:
    """Updates of key 0 until the first evaluation that reaches 90 % accuracy; None if none does."""
    scores, updates = each.run.tables["accuracy"], each.run.tables["updates"]
    reached = scores.loc[scores["accuracy"] >= 0.9, "snapshot_t_s"]
    if reached.empty:
        return None
    return max(1, int(((updates["key"] == 0) & (updates["t_s"] <= reached.min())).sum()))
