"""All-reduce algorithms against the α–β model: times, crossovers, and the order of a ring on uneven links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.papers import drawing
from analysis.figures.papers.base import Assertion, PaperFigure, Published, Sample, Study, exactly, unresolved
from analysis.figures.papers.quantities import rate_mbps, usual
from analysis.identity import Identity
from testbed.policy.collective import ALL_REDUCE, cost
from testbed.policy.collective.predict import finish_times_s
from testbed.policy.collective.schedule import GroupShape

RATE, DELAY, RANKS = "topology.generator.rate", "topology.generator.delay", "topology.generator.data_centers"
HIDDEN = "training.model.hidden"  # of a perceptron 64 - h - 10: 75 h + 10 float32 elements
LAN_DELAY_S, STEP_S = 2 * 1e-6, 1e-3
GOODPUT = 1448 / 1514  # payload per byte of an Ethernet frame
ALGORITHMS = ("ring", "butterfly", "recursive_doubling", "binary_blocks", "double_binary_tree", "direct")
HIERARCHICAL = {"three_phase_ring": cost.three_phase_ring_s, "torus2d": cost.torus2d_s}
LOOKS = {
    "ring": Identity("ring", "#0072B2", "o"), "butterfly": Identity("halving and doubling", "#D55E00", "D"),
    "recursive_doubling": Identity("recursive doubling", "#009E73", "^"),
    "binary_blocks": Identity("binary blocks", "#CC79A7", "v"),
    "double_binary_tree": Identity("double binary tree", "#E69F00", "P"),
    "direct": Identity("direct", "#56B4E9", "X"), "PS": Identity("parameter server", "#20242C", "s"),
    "three_phase_ring": Identity("three-phase ring", "#7A5195", "<"), "torus2d": Identity("2D torus", "#A6761D", "h"),
}  # fmt: skip
_LINKS = {("us", "eu"): (210, 51.55), ("us", "asia"): (130, 78.55), ("us", "aus"): (120, 88.05),
          ("eu", "asia"): (80, 126.55), ("eu", "aus"): (70, 136.025), ("asia", "aus"): (160, 65.7)}  # fmt: skip
RINGS = {"best ring": ("us", "eu", "asia", "aus"), "worst ring": ("us", "eu", "aus", "asia")}


def studies(quick: bool) -> tuple[Study, ...]:
    sizes = ("33", "333", "3333", "33333") if quick else ("10", "33", "100", "333", "1000", "3333", "10000", "33333")
    flat = {name: {"paradigm.algorithm": name} for name in ALGORITHMS}
    ps = {"PS": {"paradigm": "ps", "topology.lan": "{rate: 100 Mbit/s, delay: 0.001 ms}"}}
    places = {RANKS: ("4", "6") if quick else ("4", "6", "8"), HIDDEN: sizes}
    slow = {**places, RANKS: ("4",) if quick else ("4", "8"), RATE: ("20 Mbit/s",), DELAY: ("0.5 ms", "25 ms")}
    two = {"topology.generator.workers": ("2",), "paradigm.rank_order": ("plan",), HIDDEN: sizes}
    rings = {name: {"topology": _topology(order), "paradigm.algorithm": "ring"} for name, order in RINGS.items()}
    return (
        Study("equal links", "allreduce-ab.yaml", {**flat, **ps}, places),
        Study("20 Mbit/s", "allreduce-ab.yaml", flat, slow),
        Study("hierarchical", "allreduce-ab.yaml", {name: {"paradigm.algorithm": name} for name in HIERARCHICAL}, two),
        Study("ring order", "allreduce-ab.yaml", rings, {HIDDEN: ("65536",)}),
    )


def _topology(order: Sequence[str]) -> str:
    """Four continents at a tenth of the rates, ranks in this order."""
    sites = [f"{{name: {name}, central: {str(not place).lower()}, workers: 1}}" for place, name in enumerate(order)]
    links = [f"{{between: [{a}, {b}], rate: {rate / 10} Mbit/s, delay: {delay} ms}}"
             for (a, b), (rate, delay) in _LINKS.items()]  # fmt: skip
    lan = "lan: {rate: 10 Gbit/s, delay: 0.001 ms}, routing: hops"
    return f"{{data_centers: [{', '.join(sites)}], links: [{', '.join(links)}], {lan}}}"


def derive(samples: Sequence[Sample]) -> pd.DataFrame:
    rows = []
    for sample in samples:
        settings = sample.settings
        rate, delay_ms = rate_mbps(settings.get(RATE, "100 Mbit/s")), float(settings.get(DELAY, "25 ms").split()[0])
        size = 4.0 * (75 * int(settings[HIDDEN]) + 10)
        row = {**usual(sample), "ranks": int(settings.get(RANKS, "4")), "rate_mbps": rate, "delay_ms": delay_ms,
               "size_bytes": size, "time_s": warm_round_s(sample), "header_bytes": header_bytes(sample)}  # fmt: skip
        rows.append({**row, "formula_s": formula_s(row)})
    return pd.DataFrame(rows)


def warm_round_s(sample: Sample) -> float:
    """From the end of the last round but one to that of the last, without the step: connections are warm.

    Not from a round's own beginning: ranks do not end together, so they do not begin the next one together.
    """
    ends = sample.run.tables["rounds"].groupby("round")["t_s"].max().sort_index()
    return float(ends.iloc[-1] - ends.iloc[-2]) - STEP_S


def header_bytes(sample: Sample) -> float:
    """Of one message of a tensor, on average."""
    transfers = sample.run.tables["transfers"]
    return float(transfers.loc[transfers["round"] >= 0, "header_bytes"].mean())


def formula_s(row: Mapping[str, Any]) -> float | None:
    """What the α–β model says of a run; nothing of uneven links. α holds the delay and a message's header."""
    if row["study"] == "ring order":
        return None
    link = _link(row)
    ranks, size = row["ranks"], row["size_bytes"]
    if row["study"] == "hierarchical":
        inside = cost.LinkCost(LAN_DELAY_S, 8 / (10e9 * GOODPUT))
        if row["variant"] == "torus2d":  # rings of two inside, then rings of four whose links two members share
            return cost.torus2d_s(2, ranks, size, inside, cost.LinkCost(link.alpha_s, 2 * link.beta_s))
        return cost.three_phase_ring_s(ranks, 2, size, inside, link)
    return cost.star_s(ranks, size, link) if row["variant"] == "PS" else model_s(row["variant"], ranks, size, link)


def _link(row: Mapping[str, Any]) -> cost.LinkCost:
    beta_s = 8 / (row["rate_mbps"] * 1e6 * GOODPUT)
    return cost.LinkCost(row["delay_ms"] / 1e3 + LAN_DELAY_S + row["header_bytes"] * beta_s, beta_s)


def model_s(algorithm: str, ranks: int, size_bytes: float, link: cost.LinkCost) -> float:
    """The closed form where it is exact: powers of two, rings, direct. Otherwise its schedule, walked in the model."""
    exact = algorithm in cost.ON_EQUAL_LINKS and algorithm != "double_binary_tree"
    if exact and (ranks & (ranks - 1) == 0 or algorithm in ("ring", "butterfly", "direct")):
        return cost.ON_EQUAL_LINKS[algorithm](ranks, size_bytes, link)
    schedules = [ALL_REDUCE[algorithm](GroupShape(ranks), rank) for rank in range(ranks)]
    return max(finish_times_s(schedules, size_bytes, lambda source, target: link))


def draw(figure: Figure, frame: pd.DataFrame, known: Sequence[Published]) -> None:
    del known
    fast, slow, six, order = figure.subplots(1, 4, width_ratios=(1, 1, 1, 0.55))
    equal, thin = frame[frame["study"] == "equal links"], frame[frame["study"] == "20 Mbit/s"]
    layered = frame[frame["study"] == "hierarchical"]
    panels = (
        (fast, pd.concat([equal[equal["ranks"] == 4], layered]), "4 sites, 100 Mbit/s, 25 ms"),
        (slow, thin[(thin["ranks"] == 4) & (thin["delay_ms"] < 1)], "4 sites, 20 Mbit/s, 0.5 ms"),
        (six, equal[equal["ranks"] == 6], "6 sites, 100 Mbit/s, 25 ms"),
    )
    for axes, rows, title in panels:
        for name, look in LOOKS.items():
            of_name = rows[rows["variant"] == name].sort_values("size_bytes")
            axes.plot(of_name["size_bytes"], of_name["time_s"], linestyle="", marker=look.marker, color=look.color,
                      markeredgecolor="white", markeredgewidth=0.5, label=look.label)  # fmt: skip
            axes.plot(of_name["size_bytes"], of_name["formula_s"], color=look.color, linewidth=1.0)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(title)
        axes.set_xlabel("bytes summed (points: runs, lines: formulas)")
    fast.set_ylabel("time of one all-reduce (s)")
    _rings(order, frame[frame["study"] == "ring order"])
    figure.legend(*fast.get_legend_handles_labels(), loc="outside lower center", ncols=5)


def _rings(axes: Axes, rows: pd.DataFrame) -> None:
    looks = {"best ring": Identity("best", "#0072B2"), "worst ring": Identity("worst", "#D55E00")}
    drawing.bars(axes, rows, "time_s", looks)
    axes.set_title("Ring order, hmc4 ÷ 10")
    axes.set_ylabel("time of 19.7 MB (s)")


def check(frame: pd.DataFrame) -> list[Assertion]:
    found = []
    with_form = frame[frame["formula_s"].notna()]
    for (study, variant), rows in with_form.groupby(["study", "variant"], sort=False):
        ratios, name = rows["time_s"] / rows["formula_s"], f"{study}, {LOOKS[str(variant)].label}"
        if variant == "PS":
            claim = f"{name}: as long as the formula or up to 20 % shorter (keys go down while others come up)"
            found.append(exactly(claim, float((ratios - 0.91).abs().max()), 0, 0.11, " off 0.91 at most"))
            continue
        claim = f"{name}: within 15 % of the model at every size and number of ranks"
        found.append(exactly(claim, float((ratios - 1).abs().max()), 0, 0.15, " off at most"))
    equal = frame[frame["study"] == "equal links"]
    for ranks in sorted(set(equal["ranks"])):
        found.append(_crossover(equal[equal["ranks"] == ranks], ranks))
    rings = frame[frame["study"] == "ring order"].set_index("variant")["time_s"]
    ratio = float(rings["worst ring"] / rings["best ring"])
    claim = "ring order on hmc4: worst over best is the ratio of their slowest links (80/70 Mbit/s) within 10 %"
    return [*found, exactly(claim, ratio, 0.9 * 80 / 70, 1.1 * 80 / 70, " times")]


def _crossover(rows: pd.DataFrame, ranks: int) -> Assertion:
    """Where the ring overtakes recursive doubling, between two sizes by straight lines, against the model's lines."""
    link = cost.LinkCost(0.025 + LAN_DELAY_S, 8 / (100e6 * GOODPUT))
    lines = [[model_s(name, ranks, size, link) for size in (0.0, 1e9)] for name in ("recursive_doubling", "ring")]
    slopes = [(high - low) / 1e9 for low, high in lines]
    predicted = (lines[1][0] - lines[0][0]) / (slopes[0] - slopes[1])
    claim = f"{ranks} ranks: the ring beats recursive doubling from {predicted / 1e6:.2f} MB on, within 30 %"
    table: Any = rows.pivot_table(index="size_bytes", columns="variant", values="time_s")
    gap = (table["ring"] - table["recursive_doubling"]).sort_index()
    for (below, before), (above, after) in pairwise(gap.items()):
        if before > 0 >= after:
            measured = below + (above - below) * before / (before - after)
            return exactly(claim, measured / predicted, 0.7, 1.3, " of the prediction")
    return unresolved(claim, "the two do not cross within the sizes looked at")


FIGURE = PaperFigure(
    title="All-reduce algorithms against the α–β model",
    source="Hockney 1994; Thakur, Rabenseifner, Gropp 2005; links of the last panel: Erben et al., VLDB 2024",
    needs=("paradigm=allreduce", "paradigm=ps"),
    studies=studies, derive=derive, draw=draw, check=check, size_in=(11.5, 3.9),
)  # fmt: skip
