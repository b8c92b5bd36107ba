"""Studies: figures that check claims about techniques. Each declares a scenario, variants, cases, claims and panels.

A study of your own is a ``Study`` in any file: ``testbed figure ./my_figure.py:MY_STUDY``.
"""

from __future__ import annotations

FIGURES = (
    "headline",
    "six-way",
    "hier-k1k2",
    "esync",
    "dgt",
    "netstorm-tta",
    "p3-bandwidth",
    "sparsity",
    "allreduce-ab",
    "diloco-util",
    "low-communication",
    "goodput",
    "pipelines",
)
TECHNIQUES = (
    "dgt",
    "tsengine",
    "p3",
    "multi-gps",
    "rings",
    "data-cache",
    "parallel-optimizer",
    "partial-pull",
    "fp16",
    "bi-sparse",
    "mpq",
    "hfa",
    "diloco",
    "esync",
    "mixed-sync",
    "hitopk",
    "gossip",
)
_ALONE = {f"verdict-{name}": name.replace("-", "_").upper() for name in TECHNIQUES}
VERDICTS = ("verdicts", *_ALONE)
STUDIES: dict[str, str] = {name: f"analysis.studies.{name.replace('-', '_')}:STUDY" for name in FIGURES} | {
    name: f"analysis.studies.verdicts:{_ALONE.get(name, 'STUDY')}" for name in VERDICTS
}
"""Maps the name of a study to the place of its declaration, which is imported on demand."""
