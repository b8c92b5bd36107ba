"""DGT on links that lose packets: round time by loss and size of the model, and what it costs in accuracy."""

from __future__ import annotations

import pandas as pd

from analysis.identity import Identity, look_of
from analysis.studies.claims import Claims, between, decided, exactly
from analysis.studies.columns import setting, warm_rounds
from analysis.studies.study import Panel, Results, Study, StudySweep, against

LOSS, HIDDEN = "links[*].loss", "training.model.hidden"
MARK = 0.01  # the loss of the claims
VARIANTS = {
    "TCP": {},
    "DGT": {"order": "dgt"},
    "DGT, fixed k": {"order": "{kind: dgt, adaptive: false, k: 0.5}"},
    "DGT, random": {"order": "{kind: dgt, selection: random}"},
    "sender drops": {"order": "{kind: dgt, late: sender-drop}"},
    "heuristic drop": {"order": "{kind: dgt, late: heuristic-drop}"},
}
TIMED = ("TCP", "DGT", "DGT, fixed k")


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    sizes = ("100", "1000", "3000") if quick else ("30", "100", "300", "1000", "3000")
    losses = ("0", "0.01", "0.02") if quick else ("0", "0.005", "0.01", "0.015", "0.02")
    few, long = {"training.rounds": ("20",)}, {"training.rounds": ("60",), "training.evaluate_every": ("60",)}
    timed, seeds = {name: VARIANTS[name] for name in TIMED}, 1 if quick else 5
    return (
        StudySweep("size", timed, {HIDDEN: sizes, LOSS: ("0", "0.01"), **few}, seeds),
        StudySweep("loss", timed, {HIDDEN: ("1000",), LOSS: losses, **few}, seeds),
        StudySweep("accuracy", VARIANTS, {HIDDEN: ("300",), LOSS: ("0.02",), **long}, 3 if quick else 5),
    )


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    place = ["sweep", "model_kb", "loss", "seed"]
    gains = {f"{name}_gain": 1 - runs[f"{name}_s"] / against(runs, f"{name}_s", place, variant="TCP")
             for name in ("mean", "p95")}  # fmt: skip
    return runs.assign(**gains)


def claims(found: Results) -> Claims:
    size = found.rows(sweep="size", variant="DGT")
    lossy, clean = (size[size["loss"] == loss].groupby("model_kb")["mean_gain"].mean() for loss in (MARK, 0.0))
    measured = ", ".join(f"{kb:.0f} kB {gain:.1%}" for kb, gain in lossy.items())
    yield decided("at 1 % loss the gain grows with the model", measured, lossy.is_monotonic_increasing,
                  "a larger model gained less than a smaller one")  # fmt: skip
    yield exactly("at 1 % loss the largest model's rounds are 15 to 40 % shorter", float(lossy.iloc[-1]), 0.15, 0.40)
    yield exactly("without loss the difference is at most 3 % at every size", float(clean.abs().max()), 0, 0.03)
    p95 = found.mean("p95_gain", sweep="size", variant="DGT", loss=MARK, model_kb=size["model_kb"].max())
    yield exactly("at 1 % loss the largest model's p95 round is at least 15 % shorter", p95, 0.15, 1)
    for better, worse in (("DGT", "DGT, random"), ("DGT, random", "sender drops")):
        values = found.differences("accuracy", better, worse, sweep="accuracy")
        yield between(f"2 % loss: {better} is at least as accurate as {worse}", values, 0, 1)
    values = found.differences("accuracy", "DGT", "TCP", sweep="accuracy")
    yield between("2 % loss: DGT within half a point of TCP", values, -0.005, 1)


def _clean(variants: tuple[str, ...], title: str, loss: float) -> Panel:
    return Panel(
        title,
        "100 * mean_gain",
        "model_kb",
        where={"sweep": "size", "loss": loss},
        only=variants,
        log="x",
        x_label="model (kB)",
        y_label="round time saved against TCP (%)",
        y_range=(None, 60),
        published="%",
    )


STUDY = Study(
    title="Differential gradient transmission on links that lose packets",
    source="Zhou et al., FGCS 121, 2021 (DGT)",
    scenario="papers/dgt.yaml", sweeps=sweeps, claims=claims, derive=derive,
    columns={"loss": setting(LOSS), "mean_s": lambda each: float(warm_rounds(each).mean()),
             "p95_s": lambda each: float(warm_rounds(each).quantile(0.95)),
             "model_kb": setting(HIDDEN, lambda hidden: 4 * (75 * int(hidden) + 10) / 1e3)},
    looks={"TCP": Identity("reliable TCP", "#20242C", "s"), "DGT": look_of("dgt"),
           "DGT, fixed k": Identity("DGT, k = 0.5", "#E69F00", "o", "--"),
           "DGT, random": Identity("DGT, random blocks", "#56B4E9", "X", ":"),
           "sender drops": Identity("sender drops (SD)", "#009E73", "v", "-."),
           "heuristic drop": Identity("heuristic drop (HD)", "#CC79A7", "D", ":")},
    panels=(
        _clean(("DGT", "DGT, fixed k"), "Shorter rounds at 1 % loss", MARK),
        _clean(("DGT",), "Shorter rounds without loss", 0.0),
        Panel("Mean round, model of 300 kB", "mean_s", "100 * loss", where={"sweep": "loss"},
              x_label="packets lost (%)", y_label="s", y_range=(0, None)),
        Panel("Accuracy after 60 rounds, 2 % loss", "100 * accuracy", kind="bar", where={"sweep": "accuracy"},
              y_label="test accuracy (%)", y_range=(60, 100), width=1.1,
              labels={"TCP": "TCP", "DGT": "DGT", "DGT, fixed k": "k = 0.5", "DGT, random": "random",
                      "sender drops": "SD", "heuristic drop": "HD"}),
    ),
    size_in=(12.0, 3.5),
)  # fmt: skip
