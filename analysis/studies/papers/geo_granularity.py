"""Granularity across continents: what placing eight machines on one, two, three and four continents costs.

Calibrated on configuration B-8 alone (see the scenario): the time of a round in one zone, and from the published
granularity of C-8 how much of it is computing, which more machines share, and how much is the software's own.
"""

from __future__ import annotations

import pandas as pd

from analysis.identity import Identity
from analysis.studies.claims import Claim, Claims, exactly
from analysis.studies.study import Panel, Results, Study, StudySweep, against

ZONE_S = {"ConvNeXt-L": 193.0, "XLM-R": 40.0}  # of a round of eight machines in one zone
COMPUTING = {"ConvNeXt-L": 0.827, "XLM-R": 0.484}  # share of it: G/(1 + G) of C-8's round, G = 3.33 and 0.4
MODELS = {"ConvNeXt-L": "convnext-large", "XLM-R": "xlm-roberta-large"}
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


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    shown = ("A-4", "A-8", "B-8", "C-4", "C-8") if quick else tuple(CONFIGURATIONS)
    return (
        StudySweep("continents", {f"{model} {name}": _settings(model, name) for model in MODELS for name in shown}),
    )


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    runs[["model", "configuration"]] = runs["variant"].str.rsplit(" ", n=1, expand=True)
    runs["machines"] = [CONFIGURATIONS[name][1] for name in runs["configuration"]]
    computing_s = runs["model"].map(ZONE_S) * runs["model"].map(COMPUTING) * 8 / runs["machines"]
    runs = runs.assign(granularity=computing_s / (runs["round_time_s"] - computing_s), speed=1 / runs["round_time_s"])
    return runs.assign(of_zone=runs["speed"] / against(runs, "speed", ["model"], configuration="A-8"))


def claims(found: Results) -> Claims:
    times = found.runs.pivot_table(index="model", columns="configuration", values="round_time_s")
    lost = {name: 1 - times[f"A-{name[-1]}"] / times[name] for name in ("C-4", "C-8")}
    for name, words in (("C-8", " on four continents (C-8) loses"), ("C-4", ", one machine on each (C-4), loses")):
        for model, low, high, told in (("ConvNeXt-L", 0.0, 0.10, "at most 10 %"), ("XLM-R", 0.20, 0.45, "20 to 45 %")):
            yield exactly(f"{model}{words} {told} of A-{name[-1]}", float(lost[name][model]), low, high)
    for each in found.published:
        model, _, configuration = each.series.rpartition(" ")
        if each.unit == "share" and configuration == "C-8":
            claim = f"{each.series}: share of the zone's throughput within 10 points of the published {each.y:.0%}"
            yield exactly(claim, 1 - float(lost["C-8"][model]) - each.y, -0.10, 0.10, " off")
    for model in MODELS:
        claim = f"{model}: a continent is paid for once: two machines on each lose no more than one (5 points)"
        yield exactly(claim, float(lost["C-8"][model] - lost["C-4"][model]), -1, 0.05, " more")
        yield _rule(found, model)


def _rule(found: Results, model: str) -> Claim:
    """Doubling the machines at granularity G speeds up (G + 1)/(G/2 + 1) times, if all but computing stays."""
    four, eight = ({"model": model, "configuration": name} for name in ("A-4", "A-8"))
    granularity = found.mean("granularity", **four)
    rule = (granularity + 1) / (granularity / 2 + 1)
    claim = f"{model}: doubling A-4 (G = {granularity:.3g}) speeds up as G predicts, {rule:.3g} times, within 15 %"
    return exactly(
        claim, found.mean("speed", **eight) / found.mean("speed", **four), rule * 0.85, rule * 1.15, " times"
    )


STUDY = Study(
    title="Training large models across continents",
    source="Erben et al., VLDB 2024 (arXiv 2306.03163)",
    scenario="papers/geo-granularity.yaml", sweeps=sweeps, claims=claims, derive=derive,
    looks={"ConvNeXt-L": Identity("ConvNeXt-L (vision)", "#0072B2", "o"),
           "XLM-R": Identity("XLM-R (language)", "#D55E00", "D")},
    panels=(
        Panel("Throughput (1: eight machines in one zone)", "of_zone", "configuration", kind="bar", series="model",
              published="share", y_range=(0, 1.1), width=1.5),
        Panel("Granularity", "granularity", "configuration", kind="bar", series="model", published="G", log="y",
              y_label="computing / everything else", levels={1.0: ""}),
    ),
    size_in=(9.4, 3.6),
)  # fmt: skip
