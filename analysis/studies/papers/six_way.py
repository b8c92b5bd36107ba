"""FSA, HFA, ESync, DGT, TSEngine and P3 on three networks: who is sooner at the same accuracy, where, and why.

Every algorithm has the learning rate with which it is soonest on that network, of the same four (tried with one seed).
Emulated runs take real time, ninety of half a minute each; ``--on emulate simulate`` compares the two worlds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd
from matplotlib.axes import Axes

from analysis.identity import BACK_ENDS, PARTS, look_of
from analysis.metrics import mean_of, time_to_accuracy
from analysis.studies import worlds
from analysis.studies.claims import Claims, between
from analysis.studies.columns import accuracy, computing_share, samples, setting
from analysis.studies.drawing import INK, log_axis
from analysis.studies.study import Panel, Results, Study, StudySweep, select
from analysis.studies.verdicts.comparison import RATE, SEEDS, factors, well_chosen

RATES = ("0.001", "0.003", "0.01", "0.03")
TARGET = 0.9
_AT_WORKERS = "{kind: adam, learning_rate: 0.003, at: worker}"
VARIANTS = {
    "FSA": {},
    "HFA": {"sync": "{kind: hfa, k1: 5, k2: 1}", "optimizer": _AT_WORKERS},
    "ESync": {"sync": "esync", "optimizer": _AT_WORKERS},
    "DGT": {"order": "dgt"},
    "TSEngine": {"overlay": "{tier1: star, tier2: tsengine}"},
    "P3": {"order": "{kind: p3, slice: 16 KB}"},
}
LOOKS = {name: look_of(name.lower()) for name in VARIANTS}
NETWORKS = {"Like links and devices": "six-way-alike", "Unequal devices, changing links": "six-way",
            "Losses and a congested centre": "six-way-congested"}  # fmt: skip
ALIKE, UNEQUAL, CONGESTED = NETWORKS
CHOSEN = {network: dict.fromkeys(VARIANTS, "0.003") for network in NETWORKS}
CHOSEN[ALIKE]["ESync"] = CHOSEN[UNEQUAL]["DGT"] = CHOSEN[CONGESTED]["DGT"] = "0.01"
EXPECTED = (("P3", ALIKE, 1.1), ("ESync", UNEQUAL, 2.0), ("HFA", CONGESTED, 2.0), ("DGT", CONGESTED, 1 / 0.85),
            ("TSEngine", CONGESTED, 1.3))  # fmt: skip
SEARCH = ", learning rates"
SAME_BITS = ("FSA", "HFA", "P3")  # the others' sums depend on what was measured or lost


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    """Of each network, the runs at the chosen learning rates, and the search of those."""
    found = []
    for network, file in NETWORKS.items():
        chosen = {name: {**each, RATE: CHOSEN[network][name]} for name, each in VARIANTS.items()}
        path = f"papers/{file}.yaml"
        found.append(StudySweep(network, chosen, seeds=2 if quick else SEEDS, scenario=path))
        found.append(StudySweep(network + SEARCH, VARIANTS, {RATE: RATES}, 1, path, ("simulate",)))
    return tuple(found)


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    per_1000_s = 1000 / runs["throughput"]
    return runs.assign(
        s_per_1000_samples=per_1000_s, computing_s=per_1000_s * runs["computing_share"],
        other_s=per_1000_s * (1 - runs["computing_share"]),
        wan_mb_per_1000_samples=runs["wan_bytes"] / runs["samples"] / 1e3,
    )  # fmt: skip


def table(found: Results) -> pd.DataFrame:
    """Return one row per network, algorithm and back end: means over seeds, and the prediction's error."""
    rows = []
    for network in NETWORKS:
        for back_end in found.runs["back_end"].unique():
            known = found.rows(sweep=network, back_end=back_end)
            for variant in VARIANTS:
                runs = known[known["variant"] == variant]
                off = worlds.errors(Results(found.rows(sweep=network), found.curves), variant)
                rows.append({
                    "network": network, "algorithm": variant, "back end": BACK_ENDS[back_end].label,
                    "learning rate": CHOSEN[network][variant],
                    "seeds at the target": int(runs["to_target_s"].count()),
                    f"s to {TARGET:.0%}": runs["to_target_s"].mean(), "round (s)": runs["round_time_s"].mean(),
                    "s per 1000 samples": runs["s_per_1000_samples"].mean(),
                    "WAN MB per 1000 samples": runs["wan_mb_per_1000_samples"].mean(),
                    "error of the round (%)": 100 * mean_of(off).value if off else None,
                })  # fmt: skip
    return pd.DataFrame(rows)


def claims(found: Results) -> Claims:
    for back_end in found.runs["back_end"].unique():
        for variant, network, low in EXPECTED:
            claim = f"{network}, {variant}: at {TARGET:.0%} at least {low:.3g} times sooner than FSA"
            claim += "" if back_end == worlds.VIRTUAL else f" ({BACK_ENDS[back_end].label})"
            rows = found.rows(sweep=network, back_end=back_end)
            yield factors(rows, "to_target_s", "FSA", variant).decide(claim, low)
    if {worlds.REAL, worlds.VIRTUAL} <= set(found.runs["back_end"]):
        for network in NETWORKS:
            here = Results(found.rows(sweep=network), found.curves)
            for variant in VARIANTS:
                claim = f"{network}, {variant}: the simulated round is within 10 % of the emulated one"
                yield between(claim, worlds.errors(here, variant), -0.10, 0.10)
            yield worlds.ranking(here, VARIANTS, "s_per_1000_samples", f"{network}: time per sample")
            for bits in (worlds.same_bits(here, variant) for variant in SAME_BITS):
                yield replace(bits, claim=f"{network}, {bits.claim}")
    for network in NETWORKS:
        for chosen in well_chosen(found.rows(sweep=network + SEARCH), CHOSEN[network]):
            yield replace(chosen, claim=f"{network}, {chosen.claim}")


def _accuracy(network: str, axes: Axes, found: Results) -> None:
    """Of every algorithm, the mean over seeds after every round; a seed that has ended keeps its last accuracy."""
    curves = select(worlds.shown(found).curves, {"sweep": network})
    for variant, look in LOOKS.items():
        mine = curves[curves["variant"] == variant]
        scores = mine.pivot_table(index="at_round", columns="seed", values="at_accuracy").ffill().mean(axis=1)
        times = mine.groupby("at_round")["at_s"].mean()
        axes.plot(times, 100 * scores, color=look.color, label=look.label, linestyle=look.line, marker=look.marker,
                  markersize=4, markevery=0.15, markeredgecolor="white", markeredgewidth=0.5)  # fmt: skip
    axes.axhline(100 * TARGET, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    log_axis(axes, "x")
    low, high = axes.get_xlim()
    axes.set_xticks([tick for tick in (0.5, 1, 2, 5, 10, 20, 50, 100) if low <= tick <= high])
    axes.set_ylim(0, 100)


def _sooner(network: str, axes: Axes, found: Results) -> None:
    """Times sooner than FSA, with its interval over seeds."""
    shown = worlds.shown(found).rows(sweep=network)
    for place, (variant, look) in enumerate(LOOKS.items()):
        values, lost, *_ = factors(shown, "to_target_s", "FSA", variant)
        if lost:
            axes.annotate("not reached", (1.05, place), fontsize=7, va="center")
        if lost or not values:
            continue
        mean = mean_of(values)
        width = mean.half_width if mean.count > 1 else None
        axes.barh(place, mean.value - 1, left=1, height=0.62, color=look.color, xerr=width, ecolor=INK, capsize=2)
        end = mean.value + (width or 0)
        axes.annotate(f"{mean.value:.2f}", (max(end, 1.0), place), (4, 0), textcoords="offset points", fontsize=7.5,
                      va="center")  # fmt: skip
    axes.axvline(1, color=INK, linewidth=0.9)
    _names(axes)
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.4), 1.12 * high)


_PARTS = (("compute", "computing_s", "computing"), ("waiting", "other_s", "communicating or waiting"))


def _why(network: str, axes: Axes, found: Results) -> None:
    """Seconds for 1000 samples: computing, and all else."""
    shown = worlds.shown(found).rows(sweep=network)
    for place, variant in enumerate(LOOKS):
        runs, left = shown[shown["variant"] == variant], 0.0
        for part, column, label in _PARTS:
            value = float(runs[column].mean())
            axes.barh(place, value, left=left, height=0.62, color=PARTS[part].color, label=None if place else label)
            left += value
    _names(axes)


def _names(axes: Axes) -> None:
    axes.set_yticks(range(len(LOOKS)), [look.label for look in LOOKS.values()])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


STUDY = Study(
    title="Six algorithms on three networks",
    source="links of the second: Erben et al., VLDB 2024 (hmc4, a tenth of the rates); traces: synthetic",
    sweeps=sweeps, claims=claims, derive=derive, curves=accuracy, target=TARGET, table=table, all_back_ends=True,
    columns={"samples": samples, "computing_share": computing_share, "learning_rate": setting(RATE),
             "to_target_s": lambda each: time_to_accuracy(each.run, TARGET)},
    panels=(
        *(Panel(network, draw=partial(_accuracy, network), x_label="training time (s)",
                y_label="" if number else "test accuracy (%)") for number, network in enumerate(NETWORKS)),
        *(Panel("", draw=partial(_sooner, network), x_label=f"times sooner at {TARGET:.0%} than FSA")
          for network in NETWORKS),
        *(Panel("", draw=partial(_why, network), x_label="time for 1000 samples (s)") for network in NETWORKS),
    ),
    rows=3, size_in=(10.5, 7.6),
)  # fmt: skip
