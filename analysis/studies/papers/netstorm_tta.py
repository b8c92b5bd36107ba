"""NetStorm's network: time to accuracy of star, balanced tree, TSEngine, one and several trees of fastest paths."""

from __future__ import annotations

import pandas as pd

from analysis.identity import Identity, look_of
from analysis.studies.claims import Claims, exactly, in_order
from analysis.studies.columns import accuracy
from analysis.studies.study import Panel, Results, Study, StudySweep, against

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


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    fewer = {"training.rounds": "16"} if quick else {}
    return tuple(
        StudySweep(network, {name: {**links, **overlay, **fewer} for name, overlay in VARIANTS.items()}, {},
                   1 if quick else 5)
        for network, links in NETWORKS.items()
    )  # fmt: skip


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    """Lengths of rounds as multiples of several roots'."""
    return runs.assign(slower=runs["round_time_s"] / against(runs, "round_time_s", ["sweep"], variant=SEVERAL))


def claims(found: Results) -> Claims:
    """Accuracy by round is the same for all (first claim), so lengths of rounds compare as times to accuracy do."""
    groups = found.curves.groupby(["sweep", "seed", "at_round"])["at_accuracy"]
    spread = float((groups.max() - groups.min()).max())  # sums only round differently
    yield exactly("accuracy by round is the same for all overlays, within half a point", spread, 0, 0.005)
    for network in NETWORKS:
        slower = {name: found.mean("slower", sweep=network, variant=name) for name in VARIANTS}
        rounds = {name: found.mean("round_time_s", sweep=network, variant=name) for name in (STAR, TREE, ONE)}
        yield in_order(f"{network}: a round of star > tree > NetStorm with one root", rounds)
        yield exactly(f"{network}: several roots are no slower than one (2 % slack)", 1 / slower[ONE], 0, 1.02,
                      " of its time")  # fmt: skip
        yield exactly(f"{network}: star takes 4 to 10 times as long as several roots", slower[STAR], 4, 10, " times")
        yield exactly(f"{network}: the tree takes 1.5 to 3 times as long", slower[TREE], 1.5, 3, " times")
        yield exactly(f"{network}: TSEngine lies between star and NetStorm", slower[TSENGINE], 1, slower[STAR],
                      " times several roots'")  # fmt: skip
    tree, tsengine = (found.mean("round_time_s", sweep="dynamic", variant=name) for name in (TREE, TSENGINE))
    yield exactly("dynamic: TSEngine is faster than the tree, which never changes", tree / tsengine, 1, unit=" times")


STUDY = Study(
    title="Overlays on NetStorm's nine data centres",
    source="Li et al., IEEE/ACM ToN 2024 (NetStorm; arXiv 2404.11352); MLNET: Mai, Hong, Costa, HotCloud 2015",
    scenario="papers/netstorm-tta.yaml", sweeps=sweeps, claims=claims, derive=derive, curves=accuracy, target=TARGET,
    looks={STAR: Identity("star (MXNET)", "#20242C", "s"), TREE: look_of("tree", "balanced tree (MLNET)"),
           TSENGINE: Identity("TSEngine", "#E69F00", "X"), ONE: Identity("NetStorm, one root", "#009E73", "D", "--"),
           SEVERAL: Identity("NetStorm, several roots", "#D55E00", "o"),
           "static": Identity("static", "#8A8F98"), "dynamic": Identity("dynamic", "#0072B2")},
    panels=(
        Panel("All links 5 Mbit/s", kind="curve", where={"sweep": "static"}, levels={TARGET: "80 %"}),
        Panel("Redrawn every 6 s", kind="curve", where={"sweep": "dynamic"}, levels={TARGET: "80 %"}),
        Panel("Slower than several roots", "slower", "variant", kind="bar", series="sweep", published="x",
              y_label="times", width=0.95, legend=True),
    ),
    size_in=(9.8, 3.7),
)  # fmt: skip
