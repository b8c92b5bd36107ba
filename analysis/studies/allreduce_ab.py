"""All-reduce algorithms compared with the α–β model: their times, and the size from which the ring is the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pandas as pd

from analysis.identity import Identity
from analysis.studies.claims import Claim, Claims, exactly, unresolved
from analysis.studies.columns import setting
from analysis.studies.results import Results
from analysis.studies.study import Case, Panel, Study, StudyRun
from testbed.compute_model import ComputeModel
from testbed.policy.collective import ALL_REDUCE
from testbed.policy.collective.predict import LinkCost, finish_times_s
from testbed.policy.collective.schedule import GroupShape

RATE = "topology.generator.rate"
DELAY = "topology.generator.delay"
RANKS = "topology.generator.data_centers"
HIDDEN = "training.model.hidden"  # h of a perceptron 64 - h - 10, which has 75 h + 10 float32 elements
LAN_DELAY_S = 2 * 1e-6
STEP_S = 1e-3
MESSAGE_S = ComputeModel().message_cost_s  # the time in which a receiver reads a message
LOOKS = {
    "ring": Identity("ring", "#0072B2", "o"),
    "butterfly": Identity("halving and doubling", "#D55E00", "D"),
    "recursive_doubling": Identity("recursive doubling", "#009E73", "^"),
    "binary_blocks": Identity("binary blocks", "#CC79A7", "v"),
    "double_binary_tree": Identity("double binary tree", "#E69F00", "P"),
    "direct": Identity("direct", "#56B4E9", "X"),
    "PS": Identity("parameter server", "#20242C", "s"),
    "blueconnect": Identity("BlueConnect", "#7A5195", "<"),
    "torus2d": Identity("2D torus", "#A6761D", "h"),
}
ALGORITHMS = tuple(LOOKS)[:6]
HIERARCHICAL = ("blueconnect", "torus2d")
RIVALS = ("recursive_doubling", "ring")  # the best algorithms for small and for large tensors
SIZES = ("10", "33", "100", "333", "1000", "3333", "10000", "33333")
FLAT = {name: {"paradigm.algorithm": name} for name in ALGORITHMS}
_PORT = {"paradigm": "ps", "order": "{kind: fifo, slice: whole}", "topology.lan": "{rate: 100 Mbit/s, delay: 0.001 ms}"}


def warm_round_s(each: StudyRun) -> float:
    """Return the time (s) from the end of the last but one round to that of the last, less that of the training step.

    Connections are warm in these rounds. A round's own beginning is no reference: ranks do not end a round at the same
    time, so they do not begin the next one together.
    """
    ends = each.run.tables["rounds"].groupby("round")["t_s"].max().sort_index()
    return float(ends.iloc[-1] - ends.iloc[-2]) - STEP_S


def header_bytes(each: StudyRun) -> float:
    """Return the mean header bytes of a message that carries a tensor."""
    transfers = each.run.tables["transfers"]
    return float(transfers.loc[transfers["round"] >= 0, "header_bytes"].mean())


def formula_s(row: Mapping[str, Any]) -> float:
    """Return the time (s) of a run in the α–β model. α includes the delay, the header, and reading the message."""
    beta_s = 8 / (row["rate_mbps"] * 1e6)
    ranks = row["ranks"]
    size = row["size_bytes"]
    flat = row["variant"] in ALL_REDUCE and row["sweep"] != "hierarchical"
    reading_s = MESSAGE_S * (_read_at_once(row["variant"], ranks) if flat else 1)
    link = LinkCost(row["delay_ms"] / 1e3 + LAN_DELAY_S + reading_s + row["header_bytes"] * beta_s, beta_s)
    if row["variant"] not in ALL_REDUCE:
        return 2 * link.alpha_s + 2 * float(ranks * size) * link.beta_s  # a star: one server with one port
    if flat:
        return model_s(row["variant"], ranks, size, link)
    groups = tuple((2 * group, 2 * group + 1) for group in range(ranks))
    inside = LinkCost(LAN_DELAY_S + MESSAGE_S, 8 / 10e9)
    shared = LinkCost(link.alpha_s, 2 * beta_s)
    schedules = [ALL_REDUCE[row["variant"]](GroupShape(2 * ranks, groups), rank) for rank in range(2 * ranks)]
    return max(finish_times_s(schedules, size, lambda a, b: inside if a // 2 == b // 2 else shared))


def _read_at_once(algorithm: str, ranks: int) -> int:
    """Return the largest number of messages that rank 0 receives in one step; it reads them one after the other."""
    schedule = ALL_REDUCE[algorithm](GroupShape(ranks), 0)
    return max(len(step.receives) for steps in schedule.pipes for step in steps)


def model_s(algorithm: str, ranks: int, size_bytes: float, link: LinkCost) -> float:
    """Return the time (s) of an algorithm's schedule in the α–β model, if all links are equal."""
    schedules = [ALL_REDUCE[algorithm](GroupShape(ranks), rank) for rank in range(ranks)]
    return max(finish_times_s(schedules, size_bytes, lambda source, target: link))


def claims(found: Results) -> Claims:
    for (sweep, variant), rows in found.runs.groupby(["sweep", "variant"], sort=False):
        ratios = rows["time_s"] / rows["formula_s"]
        name = f"{sweep}, {LOOKS[str(variant)].label}"
        if variant == "PS":
            claim = f"{name}: as long as the formula or up to 20 % shorter (keys go down while others come up)"
            yield exactly(claim, float((ratios - 0.91).abs().max()), 0, 0.11, " off 0.91 at most")
        else:
            claim = f"{name}: within 15 % of the model at every size and number of ranks"
            yield exactly(claim, float((ratios - 1).abs().max()), 0, 0.15, " off at most")
    for ranks in sorted(set(found.rows(sweep="equal links")["ranks"])):
        yield _crossover(found.rows(sweep="equal links", ranks=ranks), ranks)


def _crossover(rows: pd.DataFrame, ranks: int) -> Claim:
    """Return the claim about the size from which the ring is faster than recursive doubling.

    The measured size is interpolated linearly between two sizes; the predicted one is where the model's lines cross.
    """
    link = LinkCost(0.025 + LAN_DELAY_S + MESSAGE_S, 8 / 100e6)
    lines = [[model_s(name, ranks, size, link) for size in (0.0, 1e9)] for name in ("recursive_doubling", "ring")]
    slopes = [(high - low) / 1e9 for low, high in lines]
    predicted = (lines[1][0] - lines[0][0]) / (slopes[0] - slopes[1])
    claim = f"{ranks} ranks: the ring beats recursive doubling from {predicted / 1e6:.2f} MB on, within 30 %"
    measured = crossing(rows.pivot_table(index="size_bytes", columns="variant", values="time_s"))
    if measured is None:
        return unresolved(claim, "the two do not cross within the sizes looked at")
    return exactly(claim, measured / predicted, 0.7, 1.3, " of the prediction")


def crossing(times: Any) -> float | None:
    """Return the size from which the second of ``RIVALS`` is faster, linearly interpolated; ``None`` if it never is.

    times  one row for each size, one column for each algorithm
    """
    small, large = RIVALS
    gap = (times[large] - times[small]).dropna().sort_index()
    for (below, before), (above, after) in pairwise(gap.items()):
        if before > 0 >= after:
            return float(below + (above - below) * before / (before - after))
    return None


def _times(title: str, where: dict[str, Any]) -> Panel:
    return Panel(
        title,
        "time_s",
        "size_bytes",
        kind="points",
        where=where,
        model="formula_s",
        log="xy",
        x_label="bytes summed (points: runs, lines: formulas)",
        y_label="time of one all-reduce (s)",
    )


STUDY = Study(
    title="All-reduce algorithms against the α–β model",
    source="Hockney 1994; Thakur, Rabenseifner, Gropp 2005",
    scenario="papers/allreduce-ab.yaml",
    cases={
        "equal links": Case({}, {RANKS: ("4", "6", "8"), HIDDEN: SIZES}, {**FLAT, "PS": _PORT}, seeds=1),
        "20 Mbit/s": Case(
            {RATE: "20 Mbit/s"}, {RANKS: ("4", "8"), DELAY: ("0.5 ms", "25 ms"), HIDDEN: SIZES}, FLAT, seeds=1
        ),
        "hierarchical": Case(
            {"topology.generator.workers": "2"},
            {HIDDEN: SIZES},
            {name: {"paradigm.algorithm": name} for name in HIERARCHICAL},
            seeds=1,
        ),
    },
    claims=claims,
    columns={
        "ranks": setting(RANKS, int, "4"),
        "delay_ms": setting(DELAY, lambda text: float(text.split()[0]), "25 ms"),
        "rate_mbps": lambda each: 20.0 if each.sweep == "20 Mbit/s" else 100.0,
        "size_bytes": setting(HIDDEN, lambda hidden: 4.0 * (75 * int(hidden) + 10)),
        "time_s": warm_round_s,
        "header_bytes": header_bytes,
    },
    derive=lambda runs: runs.assign(formula_s=[formula_s(row) for row in runs.to_dict("records")]),
    looks=LOOKS,
    panels=(
        _times("4 sites, 100 Mbit/s, 25 ms", {"sweep": ("equal links", "hierarchical"), "ranks": 4}),
        _times("4 sites, 20 Mbit/s, 0.5 ms", {"sweep": "20 Mbit/s", "ranks": 4, "delay_ms": 0.5}),
        _times("6 sites, 100 Mbit/s, 25 ms", {"sweep": "equal links", "ranks": 6}),
    ),
    size_in=(9.8, 3.9),
)
