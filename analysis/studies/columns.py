"""Columns of a run that several studies use."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from analysis.metrics import accuracy_curve, stands_for
from analysis.studies.results import PLACE
from analysis.studies.study import StudyRun
from testbed.costs import CODING
from testbed.results.intervals import union
from testbed.units import parse_rate

Column = Callable[[StudyRun], Any]


def setting(path: str, read: Callable[[str], Any] = float, default: str | None = None) -> Column:
    """Return a column with the value of a setting of the grid.

    read     converts the value from text
    default  the text for sweeps that do not vary the setting; ``None`` for no value
    """

    def of(each: StudyRun) -> Any:
        text = each.settings.get(path, default)
        return None if text is None else read(text)

    return of


def accuracy(each: StudyRun) -> Any:
    """Return a run's curve: seconds, WAN bytes, samples, round, accuracy and loss of every evaluation."""
    curve = accuracy_curve(each.run)
    names = {"time_s": "at_s", "wan_bytes": "at_bytes"}
    return curve.rename(columns={name: names.get(name, f"at_{name}") for name in curve})


def mbps(text: str) -> float:
    return parse_rate(text) / 1e6


def samples(each: StudyRun) -> float:
    """Return the number of training samples of all workers."""
    rounds = each.run.tables["rounds"]
    return float((rounds["samples"] * rounds["node"].map(stands_for(each.run))).sum())


def warm_rounds(each: StudyRun, first: int = 1) -> Any:
    """Return the duration (s) of each round from ``first`` on, at the slowest worker. Round 0 sets up connections."""
    rounds = each.run.tables["rounds"]
    lengths = rounds.assign(length=rounds["t_s"] - rounds["t0_s"]).groupby("round")["length"].max()
    return lengths[lengths.index >= first]


def round_s(each: StudyRun, first: int = 1) -> float:
    """Return the mean time (s) from the end of one round to that of the next, from round ``first`` on.

    Round 0 sets up connections. This is not the mean duration of rounds: they overlap if one worker receives its values
    earlier than another and begins the next round.
    """
    ends = each.run.tables["rounds"].groupby("round")["t_s"].max().sort_index()
    late = ends[ends.index >= first - 1]
    return float((late.iloc[-1] - late.iloc[0]) / (len(late) - 1)) if len(late) > 1 else math.nan


def compute_ratio(each: StudyRun) -> dict[str, float]:
    """Return, by worker, the share of its round time in which it computes, without encoding and decoding."""
    computes = each.run.tables["computes"]
    steps = computes[~computes["work"].isin(CODING)]
    ratios = {}
    for node, rounds in each.run.tables["rounds"].groupby("node"):
        inside, own = (union(rows[["t0_s", "t_s"]].to_numpy()) for rows in (rounds, steps[steps["node"] == node]))
        ratios[str(node)] = float(own.intersection(inside).total() / inside.total())
    return ratios


def ratio_spread(each: StudyRun) -> float:
    """Return the difference between the largest and the smallest value of ``compute_ratio``."""
    ratios = compute_ratio(each).values()
    return max(ratios) - min(ratios)


def computing_share(each: StudyRun) -> float:
    """Return the share of the training time in which a worker computes: the mean over workers.

    The training time includes the time between rounds.
    """
    computes = each.run.tables["computes"]
    rounds = each.run.tables["rounds"]
    length = float(rounds["t_s"].max() - rounds["t0_s"].min())
    steps = computes[computes["node"].isin(rounds["node"].unique())]
    copies = stands_for(each.run)
    workers = 0
    total = 0.0
    for node, group in steps.groupby("node"):
        count = copies.get(str(node), 1)
        total += count * (union(group[["t0_s", "t_s"]].to_numpy()).total() / length)
        workers += count
    return total / workers


def sooner_than(twin: str, *varied: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a function that adds the column ``times_sooner``: the twin's time to the target over that of each run.

    The twin's run has the same sweep, back end and seed. If it did not reach the target, its training time counts.

    varied  further columns in which the twin's run must be the same
    """
    place = [*(each for each in PLACE if each != "variant"), *varied]

    def derive(runs: pd.DataFrame) -> pd.DataFrame:
        twins = runs[runs["variant"] == twin].drop_duplicates(place).set_index(place)
        reached = twins["time_to_target_s"].fillna(twins["training_s"])
        own = reached.reindex(pd.MultiIndex.from_frame(runs[place])).to_numpy()
        return runs.assign(times_sooner=own / runs["time_to_target_s"])

    return derive
