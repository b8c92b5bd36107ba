"""DGT on links that lose packets: round time by loss and size of the model, and what it costs in accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.papers import drawing
from analysis.figures.papers.base import Assertion, PaperFigure, Published, Sample, Study, between, exactly, paired
from analysis.figures.papers.quantities import usual
from analysis.identity import Identity, look_of

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
LOOKS = {
    "TCP": Identity("reliable TCP", "#20242C", "s"), "DGT": look_of("dgt"),
    "DGT, fixed k": Identity("DGT, k = 0.5", "#E69F00", "o", "--"),
    "DGT, random": Identity("DGT, random blocks", "#56B4E9", "X", ":"),
    "sender drops": Identity("sender drops (SD)", "#009E73", "v", "-."),
    "heuristic drop": Identity("heuristic drop (HD)", "#CC79A7", "D", ":"),
}  # fmt: skip


def studies(quick: bool) -> tuple[Study, ...]:
    sizes = ("100", "1000", "3000") if quick else ("30", "100", "300", "1000", "3000")
    losses = ("0", "0.01", "0.02") if quick else ("0", "0.005", "0.01", "0.015", "0.02")
    few, long = {"training.rounds": ("20",)}, {"training.rounds": ("60",), "training.evaluate_every": ("60",)}
    time = {name: VARIANTS[name] for name in ("TCP", "DGT", "DGT, fixed k")}
    return (
        Study("size", "dgt.yaml", time, {HIDDEN: sizes, LOSS: ("0", "0.01"), **few}, 1 if quick else 5),
        Study("loss", "dgt.yaml", time, {HIDDEN: ("1000",), LOSS: losses, **few}, 1 if quick else 5),
        Study("accuracy", "dgt.yaml", VARIANTS, {HIDDEN: ("300",), LOSS: ("0.02",), **long}, 3 if quick else 5),
    )


def derive(samples: Sequence[Sample]) -> pd.DataFrame:
    rows = []
    for sample in samples:
        rounds = sample.run.tables["rounds"]
        lengths = rounds.assign(length=rounds["t_s"] - rounds["t0_s"]).groupby("round")["length"].max()
        warm = lengths[lengths.index > 0]  # the first round also sets connections up
        row = {**usual(sample), "loss": float(sample.settings[LOSS]), "mean_s": float(warm.mean())}
        row |= {"p95_s": float(warm.quantile(0.95)), "model_kb": 4 * (75 * int(sample.settings[HIDDEN]) + 10) / 1e3}
        rows.append(row)
    frame = pd.DataFrame(rows)
    places = ["study", "model_kb", "loss", "seed"]
    base = frame[frame["variant"] == "TCP"].set_index(places)
    at = pd.MultiIndex.from_frame(frame[places])
    for name in ("mean_s", "p95_s"):
        frame[f"{name[:-2]}_gain"] = 1 - frame[name] / base[name].reindex(at).to_numpy()
    return frame


def draw(figure: Figure, frame: pd.DataFrame, known: Sequence[Published]) -> None:
    size, loss, accuracy = figure.subplots(1, 3, width_ratios=(1, 1, 1.1))
    rows = frame[frame["study"] == "size"].assign(percent=lambda all_: 100 * all_["mean_gain"])
    for name in ("DGT", "DGT, fixed k"):
        drawing.line(size, rows[(rows["variant"] == name) & (rows["loss"] == MARK)], "model_kb", "percent", LOOKS[name])
    clean = Identity("DGT, no loss", "#8A8F98", "o", "--")
    drawing.line(size, rows[(rows["variant"] == "DGT") & (rows["loss"] == 0)], "model_kb", "percent", clean)
    for each in known:
        drawing.horizontal(size, each.y, f"published, {each.series}")
    drawing.log_rate(size, "model (kB)")
    size.set_xticks(sorted(rows["model_kb"].unique()), [f"{kb:.0f}" for kb in sorted(rows["model_kb"].unique())])
    size.set_title("Shorter rounds at 1 % loss")
    size.set_ylabel("round time saved against TCP (%)")
    size.set_ylim(top=60)
    size.legend(loc="upper left", fontsize=7, ncols=2)
    of_loss = frame[frame["study"] == "loss"].assign(percent=lambda all_: 100 * all_["loss"])
    for name in ("TCP", "DGT", "DGT, fixed k"):
        drawing.line(loss, of_loss[of_loss["variant"] == name], "percent", "mean_s", LOOKS[name])
    loss.set_title("Mean round, model of 300 kB")
    loss.set_xlabel("packets lost (%)")
    loss.set_ylabel("s")
    loss.set_ylim(bottom=0)
    loss.legend(fontsize=7)
    learned = frame[frame["study"] == "accuracy"].assign(percent=lambda all_: 100 * all_["accuracy"])
    short = {"TCP": "TCP", "DGT": "DGT", "DGT, fixed k": "k = 0.5", "DGT, random": "random", "sender drops": "SD",
             "heuristic drop": "HD"}  # fmt: skip
    looks = {name: Identity(short[name], look.color) for name, look in LOOKS.items()}
    drawing.bars(accuracy, learned, "percent", looks)
    accuracy.set_title("Accuracy after 60 rounds, 2 % loss")
    accuracy.set_ylabel("test accuracy (%)")
    accuracy.set_ylim(max(0.0, learned["percent"].min() - 8), 100)


def check(frame: pd.DataFrame) -> list[Assertion]:
    size = frame[(frame["study"] == "size") & (frame["variant"] == "DGT")]
    lossy, clean = (size[size["loss"] == loss].groupby("model_kb")["mean_gain"].mean() for loss in (MARK, 0.0))
    told = ", ".join(f"{kb:.0f} kB {gain:.1%}" for kb, gain in lossy.items())
    grows = lossy.is_monotonic_increasing
    found = [
        Assertion("at 1 % loss the gain grows with the model", told, "pass" if grows else "fail",
                  "" if grows else "a larger model gained less than a smaller one"),
        exactly("at 1 % loss the largest model's rounds are 15 to 40 % shorter", float(lossy.iloc[-1]), 0.15, 0.40),
        exactly("without loss the difference is at most 3 % at every size", float(clean.abs().max()), 0, 0.03),
    ]  # fmt: skip
    p95 = size[(size["loss"] == MARK) & (size["model_kb"] == size["model_kb"].max())]["p95_gain"]
    found.append(
        exactly("at 1 % loss the largest model's p95 round is at least 15 % shorter", float(p95.mean()), 0.15, 1)
    )
    learned = frame[frame["study"] == "accuracy"]
    for better, worse in (("DGT", "DGT, random"), ("DGT, random", "sender drops")):
        claim = f"2 % loss: {better} is at least as accurate as {worse}"
        found.append(between(claim, _less(learned, better, worse), 0, 1))
    claim = "2 % loss: DGT within half a point of TCP"
    return [*found, between(claim, _less(learned, "DGT", "TCP"), -0.005, 1)]


def _less(rows: pd.DataFrame, a: str, b: str) -> list[float]:
    return [x - y for x, y in paired(rows, "accuracy", a, b)]


FIGURE = PaperFigure(
    title="Differential gradient transmission on links that lose packets",
    source="Zhou et al., FGCS 121, 2021 (DGT)",
    needs=("order=dgt",),
    studies=studies, derive=derive, draw=draw, check=check, size_in=(9.8, 3.5),
)  # fmt: skip
