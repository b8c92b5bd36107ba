"""Techniques that shorten a round and leave the mathematics as it is."""

from __future__ import annotations

from analysis.studies.experiments.shared_optimizer import optimizer_s
from analysis.studies.study import StudyRun
from analysis.studies.verdicts.comparison import RATE, Expected, TwinComparison, round_s

DGT = TwinComparison(
    "DGT", "Zhou et al., FGCS 121, 2021: 19 to 37 % less training time", "verdicts/dgt.yaml",
    {"TCP": {"order": "fifo", RATE: "0.03"}, "DGT": {RATE: "0.03"}},
    {"1 % loss": {}, "no loss": {"links[*].loss": "0"}},
    (Expected("rounds are at least 15 % shorter", "1 % loss", "round_s", low=1 / 0.85),
     Expected("accuracy after the same rounds at most a point below", "1 % loss", "accuracy", low=-1, points=True),
     Expected("rounds are at most 2 % longer", "no loss", "round_s", low=1 / 1.02)),
    ("0.008", "0.03", "0.1"),
)  # fmt: skip
_LINK_EACH = (
    "{data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}, {name: c, workers: 1}], "
    "links: [{between: [a, b], rate: 20 Mbit/s, delay: 25 ms}, {between: [a, c], rate: 20 Mbit/s, delay: 40 ms}]}"
)
TSENGINE = TwinComparison(
    "TSEngine", "Zhou et al., IEEE TNSM 18(4), 2021", "verdicts/tsengine.yaml",
    {"star": {"overlay": "star"}, "TSEngine": {"overlay": "{tier1: star, tier2: tsengine}"}},
    {"eight unequal links": {}, "a link each": {"topology": _LINK_EACH}},
    (Expected("rounds are at least 1.3 times shorter", "eight unequal links", "round_s", low=1.3),
     Expected("harm: rounds are longer", "a link each", "round_s", high=1)),
)  # fmt: skip
P3 = TwinComparison(
    "P3", "Jayarajan et al., MLSys 2019: 25 to 66 % more throughput", "verdicts/p3.yaml",
    {"FIFO": {"order": "{kind: fifo, overlap: layers}"}, "P3": {}},
    {"communication = step": {}, "fast links": {"links[*].rate": "1 Gbit/s"}},
    (Expected("rounds are at least 1.1 times shorter", "communication = step", "round_s", low=1.1),
     Expected("no difference above 2 %", "fast links", "round_s", 0.98, 1.02)),
)  # fmt: skip
MULTI_GPS = TwinComparison(
    "MultiGPS", "GeoMX", "verdicts/multi-gps.yaml",
    {"one server": {"shard": "hashed", "data_centers[central].global_servers": "1"}, "MultiGPS": {}},
    {"port of the server": {}, "links slower than the port": {"links[*].rate": "10 Mbit/s"}},
    (Expected("rounds are at least 1.5 times shorter", "port of the server", "round_s", low=1.5),
     Expected("no difference above 2 %", "links slower than the port", "round_s", 0.98, 1.02)),
)  # fmt: skip


def _wan_bytes(each: StudyRun) -> int:
    """Return all bytes over the WAN: first values, the run's messages and headers included."""
    transfers = each.run.tables["transfers"]
    return int(transfers.loc[transfers["tier"] == "wan", ["payload_bytes", "header_bytes"]].to_numpy().sum())


PARTIAL_PULL = TwinComparison(
    "Partial pull", "MXNet's row_sparse_pull; Kim et al., EuroSys 2019 (Parallax): 2.8 to 6 times",
    "verdicts/partial-pull.yaml",
    {"whole tables": {"paradigm.pull": "all"}, "rows": {}},
    {"few rows a batch": {}, "all rows a batch": {"training.model.rows": "40", "training.data.categories": "20"}},
    (Expected("at least 5 times fewer bytes over the WAN", "few rows a batch", "all_wan_bytes", low=5),
     Expected("rounds are at least 5 times shorter", "few rows a batch", "round_s", low=5),
     Expected("the same accuracy", "few rows a batch", "accuracy", 0, 0, points=True),
     Expected("no difference above 5 % in bytes", "all rows a batch", "all_wan_bytes", 0.95, 1.05)),
    columns={"all_wan_bytes": _wan_bytes},
)  # fmt: skip
_FAST_STORE = {
    "training.loading.rate": "1 Gbit/s",
    "training.loading.latency": "0.1 ms",
    "training.loading.decode": "1 us",
}
DATA_CACHE = TwinComparison(
    "Data cache", "Shi et al., MLSys 2021", "verdicts/data-cache.yaml",
    {"no cache": {"training.loading.memory": "1 bytes", "training.loading.disk": "1 bytes",
                  "training.loading.prefetch": "0"}, "cache": {}},
    {"slow store": {}, "fast store": _FAST_STORE},
    (Expected("once warm, rounds are at least 1.5 times shorter", "slow store", "late_round_s", low=1.5),
     Expected("no difference above 5 %", "fast store", "late_round_s", 0.95, 1.05)),
    columns={"late_round_s": lambda each: round_s(each, 30)},
)  # fmt: skip
PARALLEL_OPTIMIZER = TwinComparison(
    "Parallel optimizer", "Shi et al., MLSys 2021", "verdicts/parallel-optimizer.yaml",
    {"each takes all norms": {"paradigm.optimizer_work": "replicated"}, "shared": {}},
    {"LAN": {}, "WAN": {"topology.lan": "{rate: 20 Mbit/s, delay: 45 ms}"}},
    (Expected("the optimizer's part of a round is at least 1.2 times shorter", "LAN", "optimizer_s", low=1.2),
     Expected("harm: it is longer", "WAN", "optimizer_s", high=1)),
    on=("simulate",), columns={"optimizer_s": optimizer_s},
)  # fmt: skip
RINGS = TwinComparison(
    "Hierarchical rings", "Cho et al., 2019 (BlueConnect); Mikami et al., 2018 (2D torus)", "verdicts/rings.yaml",
    {"ring": {"paradigm.algorithm": "ring"}, "2D torus": {"paradigm.algorithm": "torus2d"}, "BlueConnect": {}},
    {"two data centres": {}, "one worker each": {"data_centers[*].workers": "1"}},
    (Expected("BlueConnect: rounds are at least 1.5 times shorter", "two data centres", "round_s", low=1.5),
     Expected("2D torus: rounds are at least 1.5 times shorter", "two data centres", "round_s", low=1.5,
              technique="2D torus"),
     Expected("no difference above 2 %", "one worker each", "round_s", 0.98, 1.02)),
)  # fmt: skip
