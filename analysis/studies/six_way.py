"""FSA, HFA, ESync, DGT, TSEngine and P3 on three networks: which reaches the same accuracy first, where, and why.

Every algorithm uses its fastest learning rate on each network, out of the same four, which were tried with one seed.
Emulated runs take real time: ninety runs of half a minute each.
"""

from __future__ import annotations

import pandas as pd

from analysis.identity import look_of
from analysis.studies.columns import computing_share, samples, sooner_than
from analysis.studies.study import Case, Expected, Panel, Study

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
_RATES = dict.fromkeys(VARIANTS, "0.003")
ALIKE = "Like links and devices"
UNEQUAL = "Unequal devices, changing links"
CONGESTED = "Losses and a congested centre"
NETWORKS = {
    ALIKE: Case(scenario="papers/six-way-alike.yaml", learning_rates={**_RATES, "ESync": "0.01"}),
    UNEQUAL: Case(scenario="papers/six-way.yaml", learning_rates={**_RATES, "DGT": "0.01"}),
    CONGESTED: Case(scenario="papers/six-way-congested.yaml", learning_rates={**_RATES, "DGT": "0.01"}),
}
_sooner = sooner_than("FSA")


def _derive(runs: pd.DataFrame) -> pd.DataFrame:
    per_1000_s = 1000 / runs["throughput"]
    mb = runs["wan_bytes"] / runs["samples"] / 1e3
    return _sooner(runs).assign(s_per_1000_samples=per_1000_s, wan_mb_per_1000_samples=mb)


def _expected(technique: str, network: str, low: float) -> Expected:
    claim = f"{technique} is at {TARGET:.0%} at least {low:.3g} times sooner than FSA"
    return Expected(claim, network, "time_to_target_s", low, technique=technique)


def _bars(column: str, label: str) -> tuple[Panel, ...]:
    return tuple(Panel("", column, kind="bar", where={"sweep": each}, y_label=label) for each in NETWORKS)


STUDY = Study(
    title="Six algorithms on three networks",
    source="links of the second: Erben et al., VLDB 2024 (hmc4, a tenth of the rates); traces: synthetic",
    variants=VARIANTS,
    cases=NETWORKS,
    expected=(
        _expected("P3", ALIKE, 1.1),
        _expected("ESync", UNEQUAL, 2.0),
        _expected("HFA", CONGESTED, 2.0),
        _expected("DGT", CONGESTED, 1 / 0.85),
        _expected("TSEngine", CONGESTED, 1.3),
    ),
    rates=("0.001", "0.003", "0.01", "0.03"),
    target=TARGET,
    columns={"samples": samples, "computing_share": computing_share},
    derive=_derive,
    looks={name: look_of(name.lower()) for name in VARIANTS},
    panels=(
        *(Panel(each, kind="curve", where={"sweep": each}, levels={TARGET: "90 %"}) for each in NETWORKS),
        *_bars("times_sooner", f"times sooner at {TARGET:.0%} than FSA"),
        *_bars("s_per_1000_samples", "time for 1000 samples (s)"),
        *_bars("100 * computing_share", "time computing (%)"),
        *_bars("wan_mb_per_1000_samples", "MB over the WAN for 1000 samples"),
    ),
    rows=5,
    size_in=(10.5, 12.0),
)
