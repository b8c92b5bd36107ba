"""GeoMX' techniques as rungs: speed-up over a flat parameter server against the rate of the WAN, accuracy over bytes.

Throughput (samples per second) is compared, not round time, as a round of HFA is many steps.
"""

from __future__ import annotations

from itertools import pairwise

import pandas as pd

from analysis.identity import Identity, look_of
from analysis.studies.claims import Claims, decided, exactly, in_order
from analysis.studies.columns import accuracy, mbps, samples, setting
from analysis.studies.study import Panel, Results, Study, StudyRun, StudySweep, against

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
LEARNING = (FLAT, "HiPS", "+ FP16", "+ Bi-Sparse", "+ HFA")
RATE = "links[*].rate"
_FEW = ("10 Mbit/s", "20 Mbit/s", "100 Mbit/s", "1 Gbit/s")
_FREE = {
    RATE: "100 Gbit/s", "links[*].delay": "0 ms", "topology.data_centers[*].lan": "{rate: 100 Gbit/s, delay: 0 ms}",
}  # fmt: skip
_FREE_MOST = 1.15  # what the rungs save there is the servers' work: sums and Adam's step, a tenth of the workers' step
_SLACK = 1.05  # between neighbouring rates
_MANY = ("10 Mbit/s", "20 Mbit/s", "50 Mbit/s", "100 Mbit/s", "200 Mbit/s", "500 Mbit/s", "1 Gbit/s")


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    learning = {name: {**RUNGS[name], "training.rounds": "40" if "HFA" in name else "60", "training.evaluate_every":
                       "1" if "HFA" in name else "6"} for name in LEARNING}  # fmt: skip
    return (
        StudySweep("time", RUNGS, {RATE: _FEW if quick else _MANY}),
        StudySweep("free", {name: {**rung, **_FREE} for name, rung in RUNGS.items()}),
        StudySweep("learning", learning, {RATE: ("20 Mbit/s",)}, 1 if quick else 5),
    )


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    steps = runs["rounds"] * [HFA_K1 if "HFA" in name else 1 for name in runs["variant"]]
    base = against(runs, "throughput", ["sweep", "rate_mbps"], variant=FLAT)
    return runs.assign(bytes_per_step=runs["wan_bytes"] / steps, speed_up=runs["throughput"] / base)


def learning(each: StudyRun) -> pd.DataFrame:
    """Curves of the second sweep; runs of the first are too short to learn anything."""
    return accuracy(each).iloc[: None if each.sweep == "learning" else 0]


def claims(found: Results) -> Claims:
    times = found.rows(sweep="time")
    low = times["rate_mbps"].min()
    # Closed forms: HiPS sends W times less than a flat PS, FP16 half of that, HFA 1/(K1 K2); W = 2, K1 K2 = 20.
    mean = times.groupby("variant")["bytes_per_step"].mean()
    wanted = (("+ FP16", "HiPS", 2.0), ("+ HFA", "HiPS", 20.0), ("HFA + FP16", "+ HFA", 2.0), ("HiPS", FLAT, 2.0))
    for small, large, factor in wanted:
        claim = f"WAN bytes: {small} sends {factor:g} times less than {large}"
        yield exactly(claim, float(mean[large] / mean[small]), factor * 0.9999, factor * 1.0001)
    for name in RUNGS:
        if name != FLAT:
            curve = times[times["variant"] == name].sort_values("rate_mbps")["speed_up"].tolist()
            falls = all(after <= before * _SLACK for before, after in pairwise(curve))
            measured = ", ".join(f"{value:.3g}" for value in curve)
            yield decided(f"{name}: speed-up falls as the WAN gets faster", measured, falls)
            free = found.mean("speed_up", sweep="free", variant=name)
            yield exactly(
                f"{name}: at most {_FREE_MOST:g} where networks take no time", free, 0.0, _FREE_MOST, " times"
            )
    best = times[times["rate_mbps"] <= 20].sort_values("speed_up").iloc[-1]
    which = f"{best['variant']}, {best['rate_mbps']:g} Mbit/s"
    claim = f"best rung at <= 20 Mbit/s ({which}) is at least 15 times faster than {FLAT}"
    yield exactly(claim, float(best["speed_up"]), 15, unit=" times")
    reached = times[times["speed_up"] >= 20].groupby("variant")["rate_mbps"].max()
    text = ", ".join(f"{name} up to {rate:g} Mbit/s" for name, rate in reached.items()) or "by no rung at any rate here"
    yield decided("the rate up to which 20 times is reached is stated", text, True)
    order = ("+ FP16", "HiPS", FLAT)
    speeds = {name: found.mean("throughput", sweep="time", variant=name, rate_mbps=low) for name in order}
    yield in_order(f"at {low:g} Mbit/s, in samples/s: {' > '.join(order)}", speeds)


STUDY = Study(
    title="GeoMX' techniques, rung by rung",
    source="Li, Yu et al., GeoMX (2020-2023); no published figure behind the '20x' claim",
    scenario="papers/geomx-ladder.yaml", sweeps=sweeps, claims=claims, derive=derive, curves=learning,
    columns={"rate_mbps": setting(RATE, mbps), "samples": samples},
    looks={FLAT: Identity(FLAT, "#000000", "s"), "HiPS": look_of("fsa", "HiPS"), "+ FP16": look_of("fp16"),
           "+ Bi-Sparse": look_of("bisparse"), "+ MPQ": look_of("mpq"), "+ P3": look_of("p3"),
           "+ MultiGPS": look_of("multigps"), "+ HFA": look_of("hfa"),
           "HFA + FP16": Identity("HFA + FP16", "#009E73", "D", "--")},
    panels=(
        Panel("Speed-up against the WAN's rate", "speed_up", "rate_mbps", where={"sweep": "time"}, log="xy",
              published="x", x_label="rate of every WAN link (Mbit/s)",
              y_label=f"speed-up in samples/s over {FLAT} (times)", width=1.25),
        Panel("Accuracy over WAN traffic, 20 Mbit/s", x="at_bytes / 1e6", kind="curve", where={"sweep": "learning"},
              log="x", x_label="tensors sent over the WAN (MB)"),
    ),
    size_in=(9.4, 4.2),
)  # fmt: skip
