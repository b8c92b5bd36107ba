"""NetStorm's network: time to accuracy of star, balanced tree, TSEngine, one and several trees of fastest paths."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.papers import drawing
from analysis.figures.papers.base import (
    Assertion,
    PaperFigure,
    Published,
    Sample,
    Study,
    exactly,
    in_order,
)  # fmt: skip
from analysis.figures.papers.quantities import usual
from analysis.identity import Identity, look_of
from analysis.metrics import accuracy_curve, mean_of, time_to_accuracy

TARGET = 0.8  # as in the published picture
_LINKS = ("h1-h2", "h1-h3", "h2-h3", "h2-h5", "h3-h4", "h4-h5", "h4-h6", "h5-h7", "h6-h7", "h6-h8", "h6-h9", "h7-h8",
          "h8-h9")  # fmt: skip
_AT_150 = ", ".join(f"{{between: [{link.replace('-', ', ')}], rate: 150 Mbit/s}}" for link in _LINKS)
NETWORKS = {"static": {"topology.links": f"[{_AT_150}]"}, "dynamic": {}}
STAR, TREE, TSENGINE, ONE, SEVERAL = "star", "tree", "TSEngine", "one root", "several roots"


def _tier2(overlay: str) -> dict[str, str]:
    return {"overlay": f"{{tier1: star, tier2: {{{overlay}}}}}"}


VARIANTS = {
    STAR: {},
    TREE: _tier2("kind: tree, chunk: 8 KB"),
    TSENGINE: _tier2("kind: tsengine, chunk: 64 KB"),
    ONE: _tier2("kind: netstorm, trees: 1, chunk: 8 KB"),
    SEVERAL: _tier2("kind: netstorm, trees: 3, chunk: 8 KB"),
}
LOOKS = {
    STAR: Identity("star (MXNET)", "#20242C", "s"), TREE: look_of("tree", "balanced tree (MLNET)"),
    TSENGINE: Identity("TSEngine", "#E69F00", "X"), ONE: Identity("NetStorm, one root", "#009E73", "D", "--"),
    SEVERAL: Identity("NetStorm, several roots", "#D55E00", "o"),
}  # fmt: skip


def studies(quick: bool) -> tuple[Study, ...]:
    fewer = {"training.rounds": "16"} if quick else {}
    return tuple(
        Study(network, "netstorm-tta.yaml", {name: {**links, **overlay, **fewer} for name, overlay in VARIANTS.items()},
              {}, 1 if quick else 5)
        for network, links in NETWORKS.items()
    )  # fmt: skip


def derive(samples: Sequence[Sample]) -> pd.DataFrame:
    rows = []
    for sample in samples:
        curve = accuracy_curve(sample.run)
        row = {**usual(sample), "time_to_target_s": time_to_accuracy(sample.run, TARGET)}
        rows += [{**row, "at_s": at, "at_round": number, "at_accuracy": value} for at, number, value in
                 zip(curve["time_s"], curve["round"], curve["accuracy"], strict=True)]  # fmt: skip
    return pd.DataFrame(rows)


def draw(figure: Figure, frame: pd.DataFrame, known: Sequence[Published]) -> None:
    static, dynamic, times = figure.subplots(1, 3, width_ratios=(1, 1, 0.95))
    for axes, network, title in ((static, "static", "All links 5 Mbit/s"), (dynamic, "dynamic", "Redrawn every 6 s")):
        for name, look in LOOKS.items():
            rows = frame[(frame["study"] == network) & (frame["variant"] == name)]
            drawing.mean_curve(axes, rows, "at_s", "at_accuracy", look.color, look.line, look.label)
        axes.axhline(TARGET, color="#555B66", linewidth=0.9, linestyle=(0, (4, 3)))
        drawing.accuracy(axes)
        axes.set_title(title)
        axes.set_xlabel("training time (s)")
        axes.set_xlim(left=0)
    _slower(times, frame, known)
    figure.legend(*static.get_legend_handles_labels(), loc="outside lower center", ncols=5)


def _slower(axes: Axes, frame: pd.DataFrame, known: Sequence[Published]) -> None:
    """Length of a round against several roots', both networks; published ratios as hollow diamonds."""
    for number, network in enumerate(NETWORKS):
        rounds = _rounds(frame, network)
        for place, (name, look) in enumerate(LOOKS.items()):
            factor = rounds[name] / rounds[SEVERAL]
            drawing.bar(axes, place + (number - 0.5) * 0.38, mean_of([factor]), look.color, 0.36, hollow=number == 0)
    at = {f"{name}, {network}": place + (number - 0.5) * 0.38 for place, name in enumerate(LOOKS)
          for number, network in enumerate(NETWORKS)}  # fmt: skip
    shown = [each for each in known if each.series in at]
    axes.plot([at[each.series] for each in shown], [each.y for each in shown], "D", color="white", markersize=5,
              markeredgecolor="#B22222", label="published, other hardware")  # fmt: skip
    axes.set_xticks(range(len(LOOKS)), ["star", "tree", "TSEngine", "one", "several"], fontsize=7.5)
    axes.set_title("Slower than several roots")
    axes.set_ylabel("times (hollow: static, full: dynamic)")
    axes.grid(axis="x", visible=False)
    axes.legend(loc="upper right", fontsize=7)


def _rounds(frame: pd.DataFrame, network: str) -> dict[str, float]:
    rows = frame[frame["study"] == network]
    return {name: float(rows.loc[rows["variant"] == name, "round_time_s"].mean()) for name in VARIANTS}


def check(frame: pd.DataFrame) -> list[Assertion]:
    """Accuracy by round is the same for all (first claim), so lengths of rounds compare as times to accuracy do."""
    found = [_same_curves(frame)]
    for network in NETWORKS:
        rounds = _rounds(frame, network)
        below = {name: rounds[name] for name in (STAR, TREE, ONE)}
        found.append(in_order(f"{network}: a round of star > tree > NetStorm with one root", below))
        found.append(exactly(f"{network}: several roots are no slower than one (2 % slack)",
                             rounds[SEVERAL] / rounds[ONE], 0, 1.02, " of its time"))  # fmt: skip
        star, tree = rounds[STAR] / rounds[SEVERAL], rounds[TREE] / rounds[SEVERAL]
        found.append(exactly(f"{network}: star takes 4 to 10 times as long as several roots", star, 4, 10, " times"))
        found.append(exactly(f"{network}: the tree takes 1.5 to 3 times as long", tree, 1.5, 3, " times"))
        found.append(exactly(f"{network}: TSEngine lies between star and NetStorm",
                             rounds[TSENGINE] / rounds[SEVERAL], 1, star, " times several roots'"))  # fmt: skip
    dynamic = _rounds(frame, "dynamic")
    claim = "dynamic: TSEngine is faster than the tree, which never changes"
    return [*found, exactly(claim, dynamic[TREE] / dynamic[TSENGINE], 1, float("inf"), " times")]


def _same_curves(frame: pd.DataFrame) -> Assertion:
    """The largest spread of accuracy between variants, at one round of one seed: sums only round differently."""
    groups = frame.groupby(["study", "seed", "at_round"])["at_accuracy"]
    spread = float((groups.max() - groups.min()).max())
    return exactly("accuracy by round is the same for all overlays, within half a point", spread, 0, 0.005)


FIGURE = PaperFigure(
    title="Overlays on NetStorm's nine data centres",
    source="Li et al., IEEE/ACM ToN 2024 (NetStorm; arXiv 2404.11352); MLNET: Mai, Hong, Costa, HotCloud 2015",
    needs=("overlay=tree", "overlay=tsengine", "overlay=netstorm"),
    studies=studies, derive=derive, draw=draw, check=check, size_in=(9.8, 3.7),
)  # fmt: skip
