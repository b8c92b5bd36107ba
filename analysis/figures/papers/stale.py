"""Stale gradients: what asynchrony saves in time and costs in accuracy, and what repairs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.papers import drawing
from analysis.figures.papers.base import (
    Assertion,
    PaperFigure,
    Published,
    Sample,
    Study,
    between,
    column,
    exactly,
)  # fmt: skip
from analysis.figures.papers.quantities import usual
from analysis.identity import Identity, look_of, series
from analysis.measures import staleness
from analysis.metrics import mean_of

SLOW = "data_centers[east].worker_devices.worker1.speed"
_ASYNCHRONOUS = {"sync": "tap", "training.rounds": "100", "training.evaluate_every": "20"}
BOUNDS = (0, 1, 2, 4, 8)


def _dc(compensation: float, rate: float) -> dict[str, str]:
    return {**_ASYNCHRONOUS, "optimizer": f"{{kind: dcasgd, learning_rate: {rate}, compensation: {compensation}}}"}


def studies(quick: bool) -> tuple[Study, ...]:
    rates = (0.05, 0.2) if quick else (0.02, 0.05, 0.1, 0.2)
    seeds = 3 if quick else 5
    compensated = {}
    for rate in rates:
        compensated[f"ASGD {rate}"] = {**_ASYNCHRONOUS, "optimizer": f"{{kind: sgd, learning_rate: {rate}}}"}
        compensated |= {f"DC-ASGD {value:g} {rate}": _dc(value, rate) for value in (0.0, 0.04, 0.4)}
    more = {"training.rounds": "120"}
    bounded = {f"SSP {bound}": {"sync": f"{{kind: ssp, staleness: {bound}}}", **more}
               for bound in BOUNDS}  # fmt: skip
    gossip = {"AD-PSGD": {"paradigm": "{kind: gossip, algorithm: adpsgd, graph: complete}",
                          "optimizer": "{kind: sgd, learning_rate: 0.05, at: worker}", "training.rounds": "40"},
              "SSGD": {"sync": "fsa", "training.rounds": "40"}}  # fmt: skip
    return (
        Study("compensation", "stale.yaml", compensated, {}, seeds),
        Study("bounded", "stale.yaml", {**bounded, "MixedSync": {"sync": "mixedsync", **more}}, {}, seeds),
        Study("straggler", "stale.yaml", gossip, {SLOW: ("1", "0.5", "0.25", "0.1")}, 1,
              {"AD-PSGD": ("paradigm=gossip",)}),
    )  # fmt: skip


def derive(samples: Sequence[Sample]) -> pd.DataFrame:
    rows = []
    for sample in samples:
        parts = sample.variant.split()
        row = {**usual(sample), "series": parts[0], "bound": None, "compensation": None, "learning_rate": None}
        if sample.study == "compensation":
            row["learning_rate"] = float(parts[-1])
            row["compensation"] = float(parts[1]) if parts[0] == "DC-ASGD" else None
        elif sample.study == "bounded":
            row["bound"] = float(parts[1]) if parts[0] == "SSP" else None
        else:
            row["slowdown"] = 1 / float(sample.settings[SLOW])
        row["global_sha256"] = _global_bits(sample)
        row["staleness"] = staleness(sample.run) if sample.study != "straggler" else None
        rows.append(row)
    return pd.DataFrame(rows)


def _global_bits(sample: Sample) -> str:
    """Digests of what the global servers hold in the end: in asynchronous runs others hold older values."""
    finals = sample.run.tables["finals"]
    held = finals[finals["role"] == "global_server"].sort_values("node")["parameters_sha256"]
    return " ".join(held.dropna())


def draw(figure: Figure, frame: pd.DataFrame, known: Sequence[Published]) -> None:
    del known
    error, time, straggler = figure.subplots(1, 3)
    rows = frame[frame["study"] == "compensation"].assign(error=lambda all_: 1 - all_["accuracy"])
    drawing.line(error, rows[rows["series"] == "ASGD"], "learning_rate", "error", look_of("tap", "ASGD"))
    for number, value in enumerate((0.04, 0.4)):
        look = Identity(f"DC-ASGD, λ = {value:g}", ("#7A5195", "#CC79A7")[number], "sD"[number], "--")
        drawing.line(error, rows[rows["compensation"] == value], "learning_rate", "error", look)
    error.set_title("Test error of asynchronous SGD")
    error.set_xlabel("learning rate")
    error.set_xticks(sorted(rows["learning_rate"].unique()))
    error.set_ylim(bottom=0)
    error.set_ylabel("test error (%)")
    error.yaxis.set_major_formatter(lambda value, _: f"{value * 100:g}")
    error.legend()
    bounded = frame[(frame["study"] == "bounded") & frame["bound"].notna()]
    drawing.line(time, bounded, "bound", "time_to_target_s", look_of("ssp", "SSP, one worker 4 times slower"))
    mixed = column(frame, "time_to_target_s", study="bounded", series="MixedSync")
    if mixed:
        drawing.horizontal(time, mean_of(mixed).value, "MixedSync")
    time.set_title("Time to 90 %")
    time.set_xlabel("staleness bound (rounds)")
    time.set_ylabel("training time (s)")
    time.set_ylim(bottom=0)
    time.legend()
    for number, name in enumerate(("SSGD", "AD-PSGD")):
        look = series(number)
        shown = frame[(frame["study"] == "straggler") & (frame["series"] == name)]
        relative = shown.assign(relative=_relative(shown))
        drawing.line(straggler, relative, "slowdown", "relative", Identity(name, look.color, look.marker))
    straggler.set_title("Cost of one straggler")
    straggler.set_xlabel("how much slower it is (times)")
    straggler.set_ylabel("time per sample (1 = no straggler)")
    straggler.set_ylim(bottom=0)
    straggler.legend()


def _relative(rows: pd.DataFrame) -> pd.Series:
    """Time per sample against the run without a straggler."""
    alone = float(rows.loc[rows["slowdown"] == 1, "throughput"].iloc[0])
    return alone / rows["throughput"]


def check(frame: pd.DataFrame) -> list[Assertion]:
    rows = frame[frame["study"] == "compensation"]
    found = [_same_bits(rows), *_compensated(rows), _interior(frame[frame["study"] == "bounded"])]
    straggler = frame[frame["study"] == "straggler"]
    for name in ("SSGD", "AD-PSGD"):
        shown = straggler[straggler["series"] == name]
        if shown.empty:
            continue
        relative = _relative(shown)
        for slowdown in (4.0, 10.0):
            value = float(relative[shown["slowdown"].round(6) == slowdown].iloc[0])
            ideal = 4 / (3 + 1 / slowdown) if name == "AD-PSGD" else slowdown
            claim = (
                f"{name}, one of four workers {slowdown:g} times slower: time per sample {ideal:.3g} times, within 15 %"
            )
            found.append(exactly(claim, value, ideal * 0.85, ideal * 1.15, " times"))
    return found


def _same_bits(rows: pd.DataFrame) -> Assertion:
    plain = rows[rows["series"] == "ASGD"].set_index(["learning_rate", "seed"])["global_sha256"]
    zero = rows[rows["compensation"] == 0.0].set_index(["learning_rate", "seed"])["global_sha256"]
    same = int(((plain.sort_index() == zero.sort_index()) & (plain.sort_index() != "")).sum())
    verdict = "pass" if same == len(plain) else "fail"
    return Assertion("DC-ASGD with λ = 0 ends with ASGD's bits", f"{same} of {len(plain)} runs", verdict)


def _compensated(rows: pd.DataFrame) -> list[Assertion]:
    found = []
    for rate, group in rows.groupby("learning_rate"):
        plain = group[group["series"] == "ASGD"].sort_values("seed")["accuracy"].tolist()
        better = group[group["compensation"] == 0.04].sort_values("seed")["accuracy"].tolist()
        stale = mean_of(group[group["series"] == "ASGD"]["staleness"].tolist()).value
        claim = f"learning rate {rate:g} (mean staleness {stale:.2g}): DC-ASGD (λ = 0.04) at least as accurate as ASGD"
        found.append(between(claim, [a - b for a, b in zip(better, plain, strict=True)], 0, 1))
    return found


def _interior(bounded: pd.DataFrame) -> Assertion:
    claim = "SSP: the best staleness bound is neither 0 nor the largest"
    groups: Any = bounded.groupby("bound")
    times = {int(bound): group["time_to_target_s"].dropna().tolist() for bound, group in groups}
    times = {bound: values for bound, values in times.items() if values}
    told = ", ".join(f"s={bound}: {mean_of(values).value:.3g} s" for bound, values in times.items())
    if len(times) < 3:
        return Assertion(
            claim, told or "no run reached the target", "not resolved", "too few bounds reached the target"
        )
    means = {bound: mean_of(values) for bound, values in times.items()}
    if len({mean.count for mean in means.values()}) > 1:
        return Assertion(claim, told, "not resolved", "not every seed reached the target at every bound")
    best = min(means, key=lambda bound: means[bound].value)
    ends = [means[min(means)], means[max(means)]]
    apart = all(
        end.value - means[best].value > (end.half_width**2 + means[best].half_width ** 2) ** 0.5 for end in ends
    )
    if best in (min(means), max(means)):
        return Assertion(claim, told, "not resolved", f"the best here is s={best}, at an end of the range")
    return Assertion(claim, told, "pass" if apart else "not resolved", "" if apart else "intervals overlap: more seeds")


FIGURE = PaperFigure(
    title="Stale gradients and stragglers",
    source="Zheng et al., ICML 2017 (DC-ASGD); Ho et al., NIPS 2013 (SSP); Lian et al., ICML 2018 (AD-PSGD)",
    needs=("sync=tap", "sync=ssp", "sync=mixedsync", "optimizer=dcasgd"),
    studies=studies, derive=derive, draw=draw, check=check, size_in=(9.4, 3.3),
)  # fmt: skip
