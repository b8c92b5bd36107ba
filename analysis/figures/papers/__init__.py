"""The twelve figures from papers, as a literal table. What waits for a technique, or for its study, says so."""

from __future__ import annotations

from analysis.figures.papers import (
    allreduce_ab,
    dgt,
    diloco_util,
    esync,
    geo_granularity,
    geomx_ladder,
    hier_k1k2,
    netstorm_tta,
    p3_bandwidth,
    six_way,
    sparsity,
    stale,
)
from analysis.figures.papers.base import PaperFigure

FIGURES: dict[str, PaperFigure] = {
    "netstorm-tta": netstorm_tta.FIGURE,
    "geomx-ladder": geomx_ladder.FIGURE,
    "esync": esync.FIGURE,
    "allreduce-ab": allreduce_ab.FIGURE,
    "diloco-util": diloco_util.FIGURE,
    "hier-k1k2": hier_k1k2.FIGURE,
    "sparsity": sparsity.FIGURE,
    "dgt": dgt.FIGURE,
    "p3-bandwidth": p3_bandwidth.FIGURE,
    "gaia-wan": PaperFigure("Approximate synchronisation on a WAN", "Hsieh et al., NSDI 2017", ("sync=gaia",)),
    "stale": stale.FIGURE,
    "geo-granularity": geo_granularity.FIGURE,
}  # fmt: skip

COMPARISONS: dict[str, PaperFigure] = {"six-way": six_way.FIGURE}
"""Figures of our own, made in the same way."""
