"""FSA, HFA, ESync, DGT, TSEngine and P3 on four continents with changing rates, emulated and simulated."""

from __future__ import annotations

from functools import partial

import pandas as pd

from analysis.identity import BACK_ENDS, Identity, look_of
from analysis.metrics import mean_of
from analysis.studies import worlds
from analysis.studies.claims import Claims, between
from analysis.studies.columns import accuracy, samples
from analysis.studies.study import Panel, Results, Study, StudySweep

TARGET = 0.7  # reached by all of them within the few rounds that emulation affords
_LOCAL_ADAM = "{kind: adam, learning_rate: 0.003, at: worker}"
_LOCAL_SGD = "{kind: sgd, learning_rate: 0.1, at: worker}"
VARIANTS = {
    "FSA": {},
    "HFA": {"sync": "{kind: hfa, k1: 5, k2: 2}", "optimizer": _LOCAL_ADAM, "training.rounds": "8"},
    "ESync": {"sync": "esync", "optimizer": _LOCAL_SGD, "training.rounds": "12"},
    "DGT": {"order": "dgt"},
    "TSEngine": {"overlay": "{tier1: star, tier2: tsengine}"},
    "P3": {"order": "p3"},
}
LOOKS = {name: look_of(name.lower()) for name in VARIANTS}
SAME_BITS = ("FSA", "HFA", "P3")  # the others' sums depend on what was measured or lost


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    """Emulated runs take real time, so the small version has one seed of them."""
    return (StudySweep("runs", VARIANTS, seeds=1 if quick else 5),)


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    return runs.assign(s_per_1000_samples=1000 / runs["throughput"],
                       wan_mb_per_1000_samples=runs["wan_bytes"] / runs["samples"] / 1e3)  # fmt: skip


def table(found: Results) -> pd.DataFrame:
    """One row per technique: means over seeds in both worlds, and the prediction's error."""
    columns = {"round (s)": ("round_time_s", 1), "s per 1000 samples": ("s_per_1000_samples", 1),
               f"s to {TARGET:.0%}": ("time_to_target_s", 1), "accuracy (%)": ("accuracy", 100)}  # fmt: skip
    rows = []
    for variant in VARIANTS:
        row: dict[str, object] = {"technique": variant}
        for back_end in (worlds.REAL, worlds.VIRTUAL):
            for head, (column, factor) in columns.items():
                values = found.of(column, variant=variant, back_end=back_end)
                row[f"{head}, {BACK_ENDS[back_end].label}"] = factor * mean_of(values).value if values else None
        off = worlds.errors(found, variant)
        row |= {"error of the round (%)": 100 * mean_of(off).value if off else None,
                "largest error (%)": 100 * max(off, key=abs) if off else None,
                "WAN MB per 1000 samples": found.mean("wan_mb_per_1000_samples", variant=variant),
                "seeds": len(off)}  # fmt: skip
        rows.append(row)
    return pd.DataFrame(rows)


def claims(found: Results) -> Claims:
    yield from (worlds.same_bits(found, variant) for variant in SAME_BITS)
    for variant in VARIANTS:
        claim = f"{variant}: the simulated round is within 10 % of the emulated one"
        yield between(claim, worlds.errors(found, variant), -0.10, 0.10)
    yield worlds.ranking(found, VARIANTS, "s_per_1000_samples", "time per sample")
    yield from worlds.accuracies(found, VARIANTS)


STUDY = Study(
    title="Six algorithms on four continents, emulated and simulated",
    source="links: Erben et al., VLDB 2024 (hmc4, a tenth of the rates); traces: synthetic",
    scenario="papers/six-way.yaml", sweeps=sweeps, on=(worlds.REAL, worlds.VIRTUAL), claims=claims, derive=derive,
    curves=accuracy, target=TARGET, table=table, columns={"samples": samples},
    looks={**LOOKS, "emulate": Identity("emulated", "#20242C"), "simulate": Identity("simulated", "#8A8F98")},
    panels=(
        Panel("Accuracy (lines: simulated, marks: emulated)", kind="curve", width=1.25),
        Panel("Time for 1000 samples", "s_per_1000_samples", "variant", kind="bar", series="back_end", y_label="s"),
        Panel("Simulated against emulated", y_label="error of the round's length (%)", width=0.8,
              draw=partial(worlds.draw_errors, looks=LOOKS)),
    ),
    size_in=(9.8, 3.9),
)  # fmt: skip
