"""Granularity across continents: what placing eight machines on one, two, three and four continents costs.

Calibrated on configuration B-8 alone (see the scenario): the time of a round in one zone, and from the published
granularity of C-8 how much of it is computing, which more machines share, and how much is the software's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures import panels
from analysis.figures.papers.base import Assertion, PaperFigure, Published, Sample, Study, exactly, published
from analysis.figures.papers.quantities import usual
from analysis.identity import Identity

ZONE_S = {"ConvNeXt-L": 193.0, "XLM-R": 40.0}  # of a round of eight machines in one zone
COMPUTING = {"ConvNeXt-L": 0.827, "XLM-R": 0.484}  # share of it: G/(1 + G) of C-8's round, G = 3.33 and 0.4
MODELS = {"ConvNeXt-L": "convnext-large", "XLM-R": "xlm-roberta-large"}
LOOKS = {
    "ConvNeXt-L": Identity("ConvNeXt-L (vision)", "#0072B2", "o"),
    "XLM-R": Identity("XLM-R (language)", "#D55E00", "D"),
}
PLACES = {"A": ("us",), "B": ("us", "eu"), "C": ("us", "eu", "asia", "aus"), "C3": ("us", "eu", "asia")}
CONFIGURATIONS = {"A-4": ("A", 4), "A-8": ("A", 8), "B-4": ("B", 4), "B-8": ("B", 8), "C-3": ("C3", 3), "C-4": ("C", 4),
                  "C-6": ("C3", 6), "C-8": ("C", 8)}  # fmt: skip


def step_s(model: str, machines: int) -> float:
    """Computing is shared by the machines; the software's own part stays."""
    return ZONE_S[model] * (COMPUTING[model] * 8 / machines + 1 - COMPUTING[model])


def _settings(model: str, configuration: str) -> dict[str, str]:
    place, machines = CONFIGURATIONS[configuration]
    each = machines // len(PLACES[place])
    return {"training.model.name": MODELS[model], "device.step_time": f"{step_s(model, machines):.3f} s",
            "topology.sites": f"[{', '.join(PLACES[place])}]", "topology.workers": str(each),
            "topology.streams": str(each * each)}  # fmt: skip


def studies(quick: bool) -> tuple[Study, ...]:
    shown = ("A-4", "A-8", "B-8", "C-4", "C-8") if quick else tuple(CONFIGURATIONS)
    variants = {f"{model} {name}": _settings(model, name) for model in MODELS for name in shown}
    return (Study("continents", "geo-granularity.yaml", variants),)


def derive(samples: Sequence[Sample]) -> pd.DataFrame:
    rows = []
    for sample in samples:
        model, configuration = sample.variant.rsplit(" ", 1)
        machines = CONFIGURATIONS[configuration][1]
        row = {**usual(sample), "model": model, "configuration": configuration, "machines": machines}
        computing = ZONE_S[model] * COMPUTING[model] * 8 / machines
        row["granularity"] = computing / (row["round_time_s"] - computing)
        rows.append({**row, "speed": 1 / row["round_time_s"]})
    frame = pd.DataFrame(rows)
    zone = frame[frame["configuration"] == "A-8"].set_index("model")["speed"]
    frame["of_zone"] = frame["speed"] / frame["model"].map(zone)
    return frame


def draw(figure: Figure, frame: pd.DataFrame, known: Sequence[Published]) -> None:
    speed, granularity = figure.subplots(1, 2, width_ratios=(1.5, 1))
    names = [name for name in CONFIGURATIONS if (frame["configuration"] == name).any()]
    for number, (model, look) in enumerate(LOOKS.items()):
        rows = frame[frame["model"] == model].set_index("configuration")
        at = [place + (number - 0.5) * 0.38 for place in range(len(names))]
        speed.bar(at, rows.loc[names, "of_zone"], width=0.36, color=look.color, label=look.label)
        granularity.plot(range(len(names)), rows.loc[names, "granularity"], color=look.color, marker=look.marker,
                         markeredgecolor="white", label=look.label)  # fmt: skip
        for each in known:
            model_of, _, configuration = each.series.rpartition(" ")
            if model_of == model and configuration in names:
                axes = granularity if each.unit == "G" else speed
                x = names.index(configuration) + (0 if each.unit == "G" else (number - 0.5) * 0.38)
                axes.plot(x, each.y, "D", color="white", markeredgecolor="#B22222", markersize=5)
    speed.plot([], [], "D", color="white", markeredgecolor="#B22222", markersize=5, label="published, real clouds")
    for axes, title in ((speed, "Throughput (1: eight machines in one zone)"), (granularity, "Granularity")):
        axes.set_xticks(range(len(names)), names)
        axes.set_title(title)
    speed.grid(axis="x", visible=False)
    speed.set_ylim(0, 1.1)
    granularity.axhline(1, color=panels.MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
    granularity.set_yscale("log")
    granularity.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    granularity.set_ylabel("computing / everything else")
    figure.legend(*speed.get_legend_handles_labels(), loc="outside lower center", ncols=3)


def check(frame: pd.DataFrame) -> list[Assertion]:
    times = frame.pivot_table(index="model", columns="configuration", values="round_time_s")
    lost = {name: 1 - times[zone] / times[name] for name, zone in (("B-8", "A-8"), ("C-8", "A-8"), ("C-4", "A-4"))}
    cv, nlp = "ConvNeXt-L", "XLM-R"
    found = [
        exactly(f"{cv} on four continents (C-8) loses at most 10 % of A-8", float(lost["C-8"][cv]), 0, 0.10),
        exactly(f"{nlp} on four continents (C-8) loses 20 to 45 % of A-8", float(lost["C-8"][nlp]), 0.20, 0.45),
        exactly(f"{cv}, one machine on each (C-4), loses at most 10 % of A-4", float(lost["C-4"][cv]), 0, 0.10),
        exactly(f"{nlp}, one machine on each (C-4), loses 20 to 45 % of A-4", float(lost["C-4"][nlp]), 0.20, 0.45),
    ]
    for each in published("geo-granularity"):
        model, _, configuration = each.series.rpartition(" ")
        if each.unit == "share" and configuration == "C-8":
            measured = 1 - float(lost["C-8"][model])
            claim = f"{each.series}: share of the zone's throughput within 10 points of the published {each.y:.0%}"
            found.append(exactly(claim, measured - each.y, -0.10, 0.10, " off"))
    for model in MODELS:
        again = float(lost["C-8"][model] - lost["C-4"][model])
        claim = f"{model}: a continent is paid for once: two machines on each lose no more than one (5 points)"
        found.append(exactly(claim, again, -1, 0.05, " more"))
        found.append(_rule(frame, model))
    return found


def _rule(frame: pd.DataFrame, model: str) -> Assertion:
    """Doubling the machines at granularity G speeds up (G + 1)/(G/2 + 1) times, if all but computing stays."""
    rows: Any = frame[frame["model"] == model].set_index("configuration")
    granularity = float(rows.loc["A-4", "granularity"])
    rule = (granularity + 1) / (granularity / 2 + 1)
    measured = float(rows.loc["A-8", "speed"] / rows.loc["A-4", "speed"])
    claim = f"{model}: doubling A-4 (G = {granularity:.3g}) speeds up as G predicts, {rule:.3g} times, within 15 %"
    return exactly(claim, measured, rule * 0.85, rule * 1.15, " times")


FIGURE = PaperFigure(
    title="Training large models across continents",
    source="Erben et al., VLDB 2024 (arXiv 2306.03163)",
    needs=("paradigm=allreduce", "codec=fp16"),
    studies=studies, derive=derive, draw=draw, check=check, size_in=(9.4, 3.6),
)  # fmt: skip
