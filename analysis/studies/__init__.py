"""Studies: papers' figures and experiments, each a declaration (scenario, sweeps, claims, panels) for one engine.

A study of one's own is a ``Study`` in a file anywhere: ``testbed figure ./my_figure.py:MY_STUDY``.
"""

from __future__ import annotations

PAPERS = ("netstorm-tta", "geomx-ladder", "esync", "allreduce-ab", "diloco-util", "hier-k1k2", "sparsity", "dgt",
          "p3-bandwidth", "stale", "geo-granularity", "six-way")  # fmt: skip
EXPERIMENTS = ("headline", "greed", "synchronisation", "stragglers",
               "staleness", "scripts", "paradigms", "data-cache", "shared-optimizer", "data-center-lost", "agreement",
               "extrapolation", "streaming-diloco", "allreduce-times", "transfers", "tls-cost")  # fmt: skip
TECHNIQUES = ("dgt", "tsengine", "p3", "multi-gps", "rings", "data-cache", "parallel-optimizer", "partial-pull", "fp16",
              "bi-sparse", "mpq", "hfa", "diloco", "esync", "mixed-sync", "hitopk", "gossip")  # fmt: skip
_ALONE = {f"verdict-{name}": name.replace("-", "_").upper() for name in TECHNIQUES}
VERDICTS = ("verdicts", *_ALONE)
STUDIES: dict[str, str] = {
    name: f"analysis.studies.{package}.{name.replace('-', '_')}:STUDY"
    for package, names in (("papers", PAPERS), ("experiments", EXPERIMENTS))
    for name in names
} | {name: f"analysis.studies.verdicts.techniques:{_ALONE.get(name, 'STUDY')}" for name in VERDICTS}
"""Name to the place of its declaration, which is imported when it is asked for."""
