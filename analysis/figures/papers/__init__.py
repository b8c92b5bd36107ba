"""The twelve figures from papers, as a literal table. What waits for a technique, or for its study, says so."""

from __future__ import annotations

from analysis.figures.papers import diloco_util, esync, geomx_ladder, hier_k1k2, six_way, sparsity, stale
from analysis.figures.papers.base import PaperFigure

FIGURES: dict[str, PaperFigure] = {
    "netstorm-tta": PaperFigure("Time to accuracy: star, trees, TSEngine, multi-root trees",
                                "Li et al., ToN 2024 (NetStorm)", ("overlay=tree", "overlay=tsengine", "overlay=fapt")),
    "geomx-ladder": geomx_ladder.FIGURE,
    "esync": esync.FIGURE,
    "allreduce-ab": PaperFigure("All-reduce algorithms against their cost formulas", "Thakur et al. 2005; Gloo",
                                ("paradigm=allreduce",)),
    "diloco-util": diloco_util.FIGURE,
    "hier-k1k2": hier_k1k2.FIGURE,
    "sparsity": sparsity.FIGURE,
    "dgt": PaperFigure("Differential gradient transmission on lossy links", "Zhou et al., FGCS 2021", ("order=dgt",)),
    "p3-bandwidth": PaperFigure("Priority-based propagation against bandwidth", "Jayarajan et al., MLSys 2019",
                                ("order=p3", "paradigm=ps")),
    "gaia-wan": PaperFigure("Approximate synchronisation on a WAN", "Hsieh et al., NSDI 2017", ("sync=gaia",)),
    "stale": stale.FIGURE,
    "geo-granularity": PaperFigure("Granularity across continents", "Erben et al., VLDB 2024", ("paradigm=allreduce",)),
}  # fmt: skip

COMPARISONS: dict[str, PaperFigure] = {"six-way": six_way.FIGURE}
"""Figures of our own, made in the same way."""
