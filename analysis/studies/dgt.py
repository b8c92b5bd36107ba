"""DGT on links that lose packets: round time by loss rate and model size, and the cost in accuracy."""

from __future__ import annotations

import pandas as pd

from analysis.identity import Identity, look_of
from analysis.studies.claims import Claims, decided
from analysis.studies.columns import setting, warm_rounds
from analysis.studies.results import Results, against
from analysis.studies.study import Case, Expected, Panel, Study

LOSS = "links[*].loss"
HIDDEN = "training.model.hidden"
MARK = 0.01  # the loss rate for which the claims are made
SIZES = ("30", "100", "300", "1000", "3000")
TIMED = {"TCP": {}, "DGT, fixed k": {"order": "{kind: dgt, adaptive: false, k: 0.5}"}, "DGT": {"order": "dgt"}}
TRAINED = {
    **TIMED,
    "DGT, random": {"order": "{kind: dgt, selection: random}"},
    "sender drops": {"order": "{kind: dgt, late: sender-drop}"},
    "heuristic drop": {"order": "{kind: dgt, late: heuristic-drop}"},
}
_FEW = {"training.rounds": "20"}
_LONG = {"training.rounds": "60", "training.evaluate_every": "60", HIDDEN: "300", LOSS: "0.02"}


def _kilobytes(hidden: str) -> float:
    return 4 * (75 * int(hidden) + 10) / 1e3


def _gains(runs: pd.DataFrame) -> pd.DataFrame:
    base = against(runs, "mean_s", ["sweep", "model_kb", "loss", "seed"], variant="TCP")
    return runs.assign(mean_gain=1 - runs["mean_s"] / base)


def _grows(found: Results) -> Claims:
    rows = found.rows(sweep="size", variant="DGT", loss=MARK)
    gains = rows.groupby("model_kb")["mean_gain"].mean()
    measured = ", ".join(f"{kb:.0f} kB {gain:.1%}" for kb, gain in gains.items())
    yield decided(
        "at 1 % loss the gain grows with the model",
        measured,
        gains.is_monotonic_increasing,
        "a larger model gained less than a smaller one",
    )


def _panel(title: str, loss: float, *variants: str) -> Panel:
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


_LARGEST = {"model_kb": _kilobytes(SIZES[-1]), "loss": MARK}
STUDY = Study(
    title="Differential gradient transmission on links that lose packets",
    source="Zhou et al., FGCS 121, 2021 (DGT)",
    scenario="papers/dgt.yaml",
    variants=TIMED,
    cases={
        "size": Case(_FEW, {HIDDEN: SIZES, LOSS: ("0", "0.01")}),
        "loss": Case({**_FEW, HIDDEN: "1000"}, {LOSS: ("0", "0.005", "0.01", "0.015", "0.02")}),
        "accuracy": Case(_LONG, variants=TRAINED),
    },
    expected=(
        Expected(
            "at 1 % loss the largest model's rounds are 15 to 40 % shorter",
            "size",
            "mean_s",
            1 / 0.85,
            1 / 0.6,
            at=_LARGEST,
        ),
        Expected("at 1 % loss its 95th percentile is at least 15 % shorter", "size", "p95_s", 1 / 0.85, at=_LARGEST),
        *(
            Expected(
                f"without loss, {_kilobytes(size):.0f} kB: rounds differ by at most 3 %",
                "size",
                "mean_s",
                1 / 1.03,
                1 / 0.97,
                at={"model_kb": _kilobytes(size), "loss": 0.0},
            )
            for size in SIZES
        ),
        Expected(
            "DGT is at least as accurate as with random blocks",
            "accuracy",
            "accuracy",
            0,
            points=True,
            twin="DGT, random",
            technique="DGT",
        ),
        Expected(
            "with random blocks it is at least as accurate as where the sender drops them",
            "accuracy",
            "accuracy",
            0,
            points=True,
            twin="sender drops",
            technique="DGT, random",
        ),
        Expected("DGT within half a point of TCP", "accuracy", "accuracy", -0.5, points=True, technique="DGT"),
    ),
    claims=_grows,
    derive=_gains,
    columns={
        "loss": setting(LOSS),
        "model_kb": setting(HIDDEN, _kilobytes, "1000"),
        "mean_s": lambda each: float(warm_rounds(each).mean()),
        "p95_s": lambda each: float(warm_rounds(each).quantile(0.95)),
    },
    looks={
        "TCP": Identity("reliable TCP", "#20242C", "s"),
        "DGT": look_of("dgt"),
        "DGT, fixed k": Identity("DGT, k = 0.5", "#E69F00", "o", "--"),
        "DGT, random": Identity("DGT, random blocks", "#56B4E9", "X", ":"),
        "sender drops": Identity("sender drops (SD)", "#009E73", "v", "-."),
        "heuristic drop": Identity("heuristic drop (HD)", "#CC79A7", "D", ":"),
    },
    panels=(
        _panel("Shorter rounds at 1 % loss", MARK, "DGT", "DGT, fixed k"),
        _panel("Shorter rounds without loss", 0.0, "DGT"),
        Panel(
            "Mean round, model of 300 kB",
            "mean_s",
            "100 * loss",
            where={"sweep": "loss"},
            x_label="packets lost (%)",
            y_label="s",
            y_range=(0, None),
        ),
        Panel(
            "Accuracy after 60 rounds, 2 % loss",
            "100 * accuracy",
            kind="bar",
            where={"sweep": "accuracy"},
            y_label="test accuracy (%)",
            y_range=(60, 100),
            width=1.1,
            labels={
                "TCP": "TCP",
                "DGT": "DGT",
                "DGT, fixed k": "k = 0.5",
                "DGT, random": "random",
                "sender drops": "SD",
                "heuristic drop": "HD",
            },
        ),
    ),
    size_in=(12.0, 3.5),
)
