"""Overlays on NetStorm's network: star, balanced tree, TSEngine, and one or several trees of fastest paths.

All reach the same accuracy in the same round. So their times to an accuracy differ by the same factor as their rounds.
"""

from __future__ import annotations

from analysis.confidence import A_DIFFERENCE
from analysis.identity import Identity, look_of
from analysis.studies.results import against
from analysis.studies.study import Case, Expected, Panel, Study

TARGET = 0.8  # as in the published picture
_LINKS = (
    "h1-h2",
    "h1-h3",
    "h2-h3",
    "h2-h5",
    "h3-h4",
    "h4-h5",
    "h4-h6",
    "h5-h7",
    "h6-h7",
    "h6-h8",
    "h6-h9",
    "h7-h8",
    "h8-h9",
)
_AT_150 = ", ".join(f"{{between: [{link.replace('-', ', ')}], rate: 150 Mbit/s}}" for link in _LINKS)
STATIC = "static"
DYNAMIC = "dynamic"
STAR = "star"
TREE = "tree"
TSENGINE = "TSEngine"
ONE = "one root"
SEVERAL = "several roots"
SOONER = 1 + A_DIFFERENCE


def _tier2(overlay: str) -> dict[str, str]:
    return {"overlay": f"{{tier1: star, tier2: {{{overlay}}}}}"}


def _round(network: str, claim: str, twin: str, technique: str, low: float, high: float = float("inf")) -> Expected:
    return Expected(f"a round of {claim}", network, "round_time_s", low, high, twin=twin, technique=technique)


def _of_network(network: str) -> tuple[Expected, ...]:
    return (
        _round(network, "star takes longer than one of the tree", STAR, TREE, SOONER),
        _round(network, "the tree takes longer than one of NetStorm with one root", TREE, ONE, SOONER),
        _round(network, "several roots is no longer than one of one root (2 % slack)", ONE, SEVERAL, 0.98),
        _round(network, "star takes 4 to 10 times as long as one of several roots", STAR, SEVERAL, 4, 10),
        _round(network, "the tree takes 1.5 to 3 times as long", TREE, SEVERAL, 1.5, 3),
        _round(network, "TSEngine takes longer than one of NetStorm", TSENGINE, SEVERAL, 1),
        _round(network, "TSEngine takes less than one of star", STAR, TSENGINE, 1),
        Expected("the final accuracy is star's within half a point", network, "accuracy", -0.5, 0.5, points=True),
    )


STUDY = Study(
    title="Overlays on NetStorm's nine data centres",
    source="Li et al., IEEE/ACM ToN 2024 (NetStorm; arXiv 2404.11352); MLNET: Mai, Hong, Costa, HotCloud 2015",
    scenario="papers/netstorm-tta.yaml",
    variants={
        STAR: {},
        TREE: _tier2("kind: tree, chunk: 8 KB"),
        TSENGINE: _tier2("kind: tsengine, chunk: 64 KB"),
        ONE: _tier2("kind: netstorm, trees: 1, chunk: 8 KB"),
        SEVERAL: _tier2("kind: netstorm, trees: 3, chunk: 8 KB"),
    },
    cases={STATIC: Case({"topology.links": f"[{_AT_150}]"}), DYNAMIC: Case()},
    expected=(
        *_of_network(STATIC),
        *_of_network(DYNAMIC),
        _round(DYNAMIC, "the tree, which never changes, takes longer than one of TSEngine", TREE, TSENGINE, 1),
    ),
    target=TARGET,
    derive=lambda runs: runs.assign(
        slower=runs["round_time_s"] / against(runs, "round_time_s", ["sweep"], variant=SEVERAL)
    ),
    looks={
        STAR: Identity("star (MXNET)", "#20242C", "s"),
        TREE: look_of("tree", "balanced tree (MLNET)"),
        TSENGINE: Identity("TSEngine", "#E69F00", "X"),
        ONE: Identity("NetStorm, one root", "#009E73", "D", "--"),
        SEVERAL: Identity("NetStorm, several roots", "#D55E00", "o"),
        STATIC: Identity(STATIC, "#8A8F98"),
        DYNAMIC: Identity(DYNAMIC, "#0072B2"),
    },
    panels=(
        Panel("All links 5 Mbit/s", kind="curve", where={"sweep": STATIC}, levels={TARGET: "80 %"}),
        Panel("Redrawn every 6 s", kind="curve", where={"sweep": DYNAMIC}, levels={TARGET: "80 %"}),
        Panel(
            "Slower than several roots",
            "slower",
            "variant",
            kind="bar",
            series="sweep",
            published="x",
            y_label="times",
            width=0.95,
            legend=True,
        ),
    ),
    size_in=(9.8, 3.7),
)
