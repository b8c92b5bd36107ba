"""Stale gradients: what asynchrony saves in time and costs in accuracy, and what repairs it."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes

from analysis.identity import Identity, look_of, series
from analysis.metrics import mean_of, staleness
from analysis.studies import worlds
from analysis.studies.claims import Claim, Claims, between, decided, exactly, unresolved
from analysis.studies.columns import setting
from analysis.studies.drawing import horizontal
from analysis.studies.study import Panel, Results, Study, StudyRun, StudySweep, against

SLOW = "data_centers[east].worker_devices.worker1.speed"
_ASYNCHRONOUS = {"sync": "tap", "training.rounds": "100", "training.evaluate_every": "20"}
BOUNDS = (0, 1, 2, 4, 8)


def _dc(compensation: float, rate: float) -> dict[str, str]:
    return {**_ASYNCHRONOUS, "optimizer": f"{{kind: dcasgd, learning_rate: {rate}, compensation: {compensation}}}"}


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    seeds, compensated = 3 if quick else 5, {}
    for rate in (0.05, 0.2) if quick else (0.02, 0.05, 0.1, 0.2):
        compensated[f"ASGD {rate}"] = {**_ASYNCHRONOUS, "optimizer": f"{{kind: sgd, learning_rate: {rate}}}"}
        compensated |= {f"DC-ASGD {value:g} {rate}": _dc(value, rate) for value in (0.0, 0.04, 0.4)}
    more = {"training.rounds": "120"}
    bounded = {f"SSP {bound}": {"sync": f"{{kind: ssp, staleness: {bound}}}", **more} for bound in BOUNDS}
    gossip = {"AD-PSGD": {"paradigm": "{kind: gossip, algorithm: adpsgd, graph: complete}",
                          "optimizer": "{kind: sgd, learning_rate: 0.05, at: worker}", "training.rounds": "40"},
              "SSGD": {"sync": "fsa", "training.rounds": "40"}}  # fmt: skip
    return (
        StudySweep("compensation", compensated, {}, seeds),
        StudySweep("bounded", {**bounded, "MixedSync": {"sync": "mixedsync", **more}}, {}, seeds),
        StudySweep("straggler", gossip, {SLOW: ("1", "0.5", "0.25", "0.1")}),
    )


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    """Split the variants' labels into ``series`` and bound (SSP), or learning rate and compensation ((DC-)ASGD)."""
    words = runs["variant"].str.split()
    kind, last = words.str[0], pd.to_numeric(words.str[-1], errors="coerce")
    compensation = pd.to_numeric(words.str[1], errors="coerce").where(kind == "DC-ASGD")
    runs = runs.assign(
        series=kind,
        bound=last.where(kind == "SSP"),
        compensation=compensation,
        learning_rate=last.where(runs["sweep"] == "compensation"),
        slowdown=1 / runs["speed"],
    )
    # time per sample against the run without a straggler
    runs["relative"] = against(runs, "throughput", ["sweep", "series"], slowdown=1.0) / runs["throughput"]
    lam = "DC-ASGD, λ = " + runs["compensation"].map("{:g}".format)
    return runs.assign(line=runs["series"].where(runs["compensation"].isna(), lam))


def _global_bits(each: StudyRun) -> str:
    """Return digests of what the global servers hold in the end: in asynchronous runs other nodes hold older values."""
    finals = each.run.tables["finals"]
    held = finals[finals["role"] == "global_server"].sort_values("node")["parameters_sha256"]
    return " ".join(held.dropna())


def claims(found: Results) -> Claims:
    rows = found.rows(sweep="compensation")
    places = ["learning_rate", "seed"]
    plain, zero = (rows[mask].set_index(places)["global_sha256"].sort_index()
                   for mask in (rows["series"] == "ASGD", rows["compensation"] == 0.0))  # fmt: skip
    same = int(((plain == zero) & (plain != "")).sum())
    yield decided("DC-ASGD with λ = 0 ends with ASGD's bits", f"{same} of {len(plain)} runs", same == len(plain))
    for rate in sorted(rows["learning_rate"].unique()):
        stale = found.mean("staleness", series="ASGD", learning_rate=rate)
        claim = f"learning rate {rate:g} (mean staleness {stale:.2g}): DC-ASGD (λ = 0.04) at least as accurate as ASGD"
        yield between(claim, found.differences("accuracy", f"DC-ASGD 0.04 {rate:g}", f"ASGD {rate:g}"), 0, 1)
    yield _interior(found)
    for name in ("SSGD", "AD-PSGD"):
        for slowdown in (4.0, 10.0):
            ideal = 4 / (3 + 1 / slowdown) if name == "AD-PSGD" else slowdown
            value = found.mean("relative", sweep="straggler", series=name, slowdown=slowdown)
            claim = (
                f"{name}, one of four workers {slowdown:g} times slower: time per sample {ideal:.3g} times, within 15 %"
            )
            yield exactly(claim, value, ideal * 0.85, ideal * 1.15, " times")


def _interior(found: Results) -> Claim:
    claim = "SSP: the best staleness bound is neither 0 nor the largest"
    times = {bound: found.every("time_to_target_s", series="SSP", bound=bound) for bound in BOUNDS}
    known = {bound: [value for value in values if not math.isnan(value)] for bound, values in times.items()}
    means = {bound: mean_of(values) for bound, values in known.items() if values}
    measured = (
        ", ".join(f"s={bound}: {mean.value:.3g} s" for bound, mean in means.items()) or "no run reached the target"
    )
    if known != times:
        return unresolved(claim, "not every seed reached the target at every bound", measured)
    if len(means) < 3:
        return unresolved(claim, "too few bounds ran", measured)
    best = min(means, key=lambda bound: means[bound].value)
    if best in (min(means), max(means)):
        return unresolved(claim, f"the best here is s={best}, at an end of the range", measured)
    apart = all(end.value - means[best].value > (end.half_width**2 + means[best].half_width ** 2) ** 0.5
                for end in (means[min(means)], means[max(means)]))  # fmt: skip
    return decided(claim, measured, True) if apart else unresolved(claim, "intervals overlap: more seeds", measured)


def _mixed(axes: Axes, found: Results) -> None:
    """Draw MixedSync, which has no bound, as a horizontal line."""
    times = worlds.shown(found).of("time_to_target_s", sweep="bounded", series="MixedSync")
    if times:
        horizontal(axes, mean_of(times).value, "MixedSync")


STUDY = Study(
    title="Stale gradients and stragglers",
    source="Zheng et al., ICML 2017 (DC-ASGD); Ho et al., NIPS 2013 (SSP); Lian et al., ICML 2018 (AD-PSGD)",
    scenario="papers/stale.yaml", sweeps=sweeps, claims=claims, derive=derive,
    columns={"speed": setting(SLOW), "global_sha256": _global_bits,
             "staleness": lambda each: staleness(each.run) if each.sweep != "straggler" else None},
    looks={"ASGD": look_of("tap", "ASGD"), "DC-ASGD, λ = 0.04": Identity("DC-ASGD, λ = 0.04", "#7A5195", "s", "--"),
           "DC-ASGD, λ = 0.4": Identity("DC-ASGD, λ = 0.4", "#CC79A7", "D", "--"),
           "SSP": look_of("ssp", "SSP, one worker 4 times slower"), "MixedSync": look_of("mixedsync"),
           "SSGD": series(0, "SSGD"), "AD-PSGD": series(1, "AD-PSGD")},
    panels=(
        Panel("Test error of asynchronous SGD", "100 - 100 * accuracy", "learning_rate",
              where={"sweep": "compensation"}, series="line",
              only=("ASGD", "DC-ASGD, λ = 0.04", "DC-ASGD, λ = 0.4"), x_label="learning rate",
              y_label="test error (%)", y_range=(0, None), legend=True),
        Panel("Time to 90 %", "time_to_target_s", "bound", where={"sweep": "bounded"}, series="series", only=("SSP",),
              x_label="staleness bound (rounds)", y_label="training time (s)", y_range=(0, None), legend=True,
              draw=_mixed),
        Panel("Cost of one straggler", "relative", "slowdown", where={"sweep": "straggler"}, series="series",
              x_label="how much slower it is (times)", y_label="time per sample (1 = no straggler)",
              y_range=(0, None), legend=True),
    ),
    size_in=(9.4, 3.3),
)  # fmt: skip
