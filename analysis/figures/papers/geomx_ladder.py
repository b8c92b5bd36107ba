"""GeoMX' techniques as rungs: speed-up over a flat parameter server against the rate of the WAN, accuracy over bytes.

Throughput (samples per second) is compared, not round time, as a round of HFA is many steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.papers import drawing
from analysis.figures.papers.base import (
    Assertion,
    PaperFigure,
    Published,
    Sample,
    Study,
    column,
    exactly,
    unresolved,
)  # fmt: skip
from analysis.figures.papers.quantities import rate_mbps, usual
from analysis.identity import Identity, look_of

FLAT = "flat PS"
HFA_K1, HFA_K2 = 5, 4
HFA = f"{{kind: hfa, k1: {HFA_K1}, k2: {HFA_K2}}}"
_SGD = "{kind: sgd, learning_rate: 0.1, at: worker}"
_ADAM = "{kind: adam, learning_rate: 0.002, at: worker}"  # sparse sums come down, and every worker steps: as in GeoMX
_BISPARSE = "{tier1: none, tier2: {kind: bisparse, ratio: 0.01, pull: sparse-sum}}"
_MPQ = "{tier1: fp16, tier2: {kind: mpq, ratio: 0.01, pull: sparse-sum}}"
RUNGS: dict[str, dict[str, str]] = {
    FLAT: {"paradigm": "ps"},
    "HiPS": {},
    "+ FP16": {"codec": "fp16"},
    "+ Bi-Sparse": {"codec": _BISPARSE, "optimizer": _ADAM},
    "+ MPQ": {"codec": _MPQ, "optimizer": _ADAM},
    "+ P3": {"order": "p3"},
    "+ MultiGPS": {"shard": "multigps", "topology.data_centers[central].global_servers": "2"},
    "+ HFA": {"sync": HFA, "optimizer": _SGD},
    "HFA + FP16": {"sync": HFA, "optimizer": _SGD, "codec": "fp16"},
}
NEEDS = {FLAT: ("paradigm=ps",), "+ P3": ("order=p3",), "+ MultiGPS": ("shard=multigps",)}
RATE = "links[*].rate"
LOOKS = {
    FLAT: Identity(FLAT, "#000000", "s"), "HiPS": look_of("fsa", "HiPS"), "+ FP16": look_of("fp16"),
    "+ Bi-Sparse": look_of("bisparse"), "+ MPQ": look_of("mpq"), "+ P3": look_of("p3"),
    "+ MultiGPS": look_of("multigps"), "+ HFA": look_of("hfa"),
    "HFA + FP16": Identity("HFA + FP16", "#009E73", "D", "--"),
}  # fmt: skip


def studies(quick: bool) -> tuple[Study, ...]:
    rates = ("10 Mbit/s", "20 Mbit/s", "100 Mbit/s", "1 Gbit/s")
    many = ("10 Mbit/s", "20 Mbit/s", "50 Mbit/s", "100 Mbit/s", "200 Mbit/s", "500 Mbit/s", "1 Gbit/s")
    learning = {name: {**rung, "training.rounds": "40" if "HFA" in name else "60", "training.evaluate_every":
                       "1" if "HFA" in name else "6"} for name, rung in RUNGS.items()
                if name in (FLAT, "HiPS", "+ FP16", "+ Bi-Sparse", "+ HFA")}  # fmt: skip
    return (
        Study("time", "geomx-ladder.yaml", RUNGS, {RATE: rates if quick else many}, 1, NEEDS),
        Study("learning", "geomx-ladder.yaml", learning, {RATE: ("20 Mbit/s",)}, 1 if quick else 5, NEEDS),
    )


def derive(samples: Sequence[Sample]) -> pd.DataFrame:
    from analysis.metrics import accuracy_curve

    rows = []
    for sample in samples:
        row = {**usual(sample), "rate_mbps": rate_mbps(sample.settings[RATE])}
        row["samples"] = float(sample.run.tables["rounds"]["samples"].sum())
        row["bytes_per_step"] = row["wan_bytes"] / row["rounds"] / (HFA_K1 if "HFA" in sample.variant else 1)
        if sample.study == "time":
            rows.append(row)
            continue
        curve = accuracy_curve(sample.run)
        rows += [
            {**row, "at_bytes": at, "at_s": now, "accuracy": accuracy}
            for at, now, accuracy in zip(curve["wan_bytes"], curve["time_s"], curve["accuracy"], strict=True)
        ]
    frame = pd.DataFrame(rows)
    base = _base(frame)
    reference = frame[(frame["study"] == "time") & (frame["variant"] == base)].set_index("rate_mbps")["throughput"]
    frame["speed_up"] = frame["throughput"] / frame["rate_mbps"].map(reference)
    frame["base"] = base
    return frame


def _base(frame: pd.DataFrame) -> str:
    return FLAT if (frame["variant"] == FLAT).any() else "HiPS"


def draw(figure: Figure, frame: pd.DataFrame, known: Sequence[Published]) -> None:
    speed, learning = figure.subplots(1, 2, width_ratios=(1.25, 1))
    times, curves = frame[frame["study"] == "time"], frame[frame["study"] == "learning"]
    for name, look in LOOKS.items():
        drawing.line(speed, times[times["variant"] == name], "rate_mbps", "speed_up", look)
        rows = curves[curves["variant"] == name]
        for _, of_seed in rows.groupby("seed"):
            first = of_seed["seed"].iloc[0] == rows["seed"].min()
            style = {"color": look.color, "marker": look.marker, "linestyle": look.line, "alpha": 1 if first else 0.4}
            learning.plot(of_seed["at_bytes"] / 1e6, of_seed["accuracy"], label=look.label if first else None, **style)
    drawing.log_rate(speed)
    speed.set_yscale("log")
    speed.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    speed.set_ylabel(f"speed-up in samples/s over {frame['base'].iloc[0]} (times)")
    speed.set_title("Speed-up against the WAN's rate")
    for each in known:
        drawing.horizontal(speed, each.y, f"published, rate unknown: {each.series}")
    learning.set_title("Accuracy over WAN traffic, 20 Mbit/s")
    learning.set_xscale("log")
    learning.set_xlabel("tensors sent over the WAN (MB)")
    drawing.accuracy(learning)
    figure.legend(*speed.get_legend_handles_labels(), loc="outside lower center", ncols=5)


def check(frame: pd.DataFrame) -> list[Assertion]:
    times = frame[frame["study"] == "time"]
    base, low, high = frame["base"].iloc[0], times["rate_mbps"].min(), times["rate_mbps"].max()
    found = [*_bytes(times), *_falling(times, base, high)]
    slow = times[times["rate_mbps"] <= 20]
    if base == FLAT and len(slow):
        best = slow.sort_values("speed_up").iloc[-1]
        which = f"{best['variant']}, {best['rate_mbps']:g} Mbit/s"
        told = f"best rung at <= 20 Mbit/s ({which}) is at least 15 times faster than {base}"
        found.append(exactly(told, float(best["speed_up"]), 15, float("inf"), " times"))
        reached = times[times["speed_up"] >= 20].groupby("variant")["rate_mbps"].max()
        text = (
            ", ".join(f"{name} up to {rate:g} Mbit/s" for name, rate in reached.items())
            or "by no rung at any rate here"
        )
        found.append(Assertion("the rate up to which 20 times is reached is stated", text, "pass"))
    else:
        found.append(
            unresolved("best rung at <= 20 Mbit/s is at least 15 times faster", "there is no flat PS to compare with")
        )
    order = ("+ FP16", "HiPS", FLAT) if base == FLAT else ("+ FP16", "HiPS")
    at_low = [column(times, "throughput", variant=name, rate_mbps=low)[0] for name in order]
    claim = f"at {low:g} Mbit/s: {' > '.join(order)}"
    text = ", ".join(f"{name} {value:.4g} samples/s" for name, value in zip(order, at_low, strict=True))
    found.append(Assertion(claim, text, "pass" if at_low == sorted(at_low, reverse=True) else "fail"))
    return found


def _bytes(times: pd.DataFrame) -> list[Assertion]:
    """Closed forms: HiPS sends W times less than a flat PS, FP16 half of that, HFA 1/(K1 K2); W = 2, K1 K2 = 20."""
    mean = times.groupby("variant")["bytes_per_step"].mean()
    wanted = [("+ FP16", "HiPS", 2.0), ("+ HFA", "HiPS", 20.0), ("HFA + FP16", "+ HFA", 2.0), ("HiPS", FLAT, 2.0)]
    return [
        exactly(f"WAN bytes: {small} sends {factor:g} times less than {large}", float(mean[large] / mean[small]),
                factor * 0.9999, factor * 1.0001)
        for small, large, factor in wanted if {small, large} <= set(mean.index)
    ]  # fmt: skip


def _falling(times: pd.DataFrame, base: str, high: float) -> list[Assertion]:
    found = []
    for name, rows in times.groupby("variant", sort=False):
        if name == base:
            continue
        curve = rows.sort_values("rate_mbps")["speed_up"].tolist()
        told = ", ".join(f"{value:.3g}" for value in curve)
        falls = all(after <= before * 1.02 for before, after in pairwise(curve))
        found.append(Assertion(f"{name}: speed-up falls as the WAN gets faster", told, "pass" if falls else "fail"))
        claim = f"{name}: at most 1.1 at {high:g} Mbit/s"
        found.append(exactly(claim, curve[-1], 0.0, 1.1, " times"))
    return found


FIGURE = PaperFigure(
    title="GeoMX' techniques, rung by rung",
    source="Li, Yu et al., GeoMX (2020-2023); no published figure behind the '20x' claim",
    needs=("paradigm=hips", "codec=fp16", "codec=bisparse", "codec=mpq", "sync=hfa"),
    studies=studies, derive=derive, draw=draw, check=check, size_in=(9.4, 4.2),
)  # fmt: skip
