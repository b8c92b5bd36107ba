"""Studies: papers' figures and experiments, each a declaration (scenario, sweeps, claims, panels) for one engine.

A study of one's own is a ``Study`` in a file anywhere: ``testbed figure ./my_figure.py:MY_STUDY``.
"""

from __future__ import annotations

PAPERS = ("netstorm-tta", "geomx-ladder", "esync", "allreduce-ab", "diloco-util", "hier-k1k2", "sparsity", "dgt",
          "p3-bandwidth", "stale", "geo-granularity", "six-way")  # fmt: skip
EXPERIMENTS = ("headline", "greed", "synchronisation", "stragglers",
               "staleness", "scripts", "paradigms", "data-cache", "shared-optimizer", "data-center-lost", "agreement",
               "extrapolation", "streaming-diloco", "allreduce-times", "transfers", "tls-cost")  # fmt: skip
VERDICTS = {"verdicts": "everything:STUDY", "verdict-dgt": "rounds:DGT", "verdict-tsengine": "rounds:TSENGINE",
            "verdict-p3": "rounds:P3", "verdict-multi-gps": "rounds:MULTI_GPS", "verdict-rings": "rounds:RINGS",
            "verdict-data-cache": "rounds:DATA_CACHE", "verdict-parallel-optimizer": "rounds:PARALLEL_OPTIMIZER",
            "verdict-partial-pull": "rounds:PARTIAL_PULL",
            "verdict-fp16": "training:FP16", "verdict-bi-sparse": "training:BI_SPARSE", "verdict-mpq": "training:MPQ",
            "verdict-hfa": "training:HFA", "verdict-diloco": "training:DILOCO", "verdict-esync": "training:ESYNC",
            "verdict-mixed-sync": "training:MIXED_SYNC", "verdict-hitopk": "training:HITOPK",
            "verdict-gossip": "training:GOSSIP"}  # fmt: skip
STUDIES: dict[str, str] = {
    name: f"analysis.studies.{package}.{name.replace('-', '_')}:STUDY"
    for package, names in (("papers", PAPERS), ("experiments", EXPERIMENTS))
    for name in names
} | {name: f"analysis.studies.verdicts.{place}" for name, place in VERDICTS.items()}
"""Name to the place of its declaration, which is imported when it is asked for."""
