"""Studies that compare each technique with its twin, the same job without the technique; and one of all together.

The first techniques shorten a round and leave the mathematics unchanged. The others change the computation or the
messages, so their claims are about the time to the same accuracy, each technique at its best learning rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.confidence import A_DIFFERENCE
from analysis.studies.columns import round_s
from analysis.studies.study import RATE, Case, Expected, Panel, Settings, Study, StudyRun


def _study(
    technique: str,
    source: str,
    scenario: str,
    variants: Mapping[str, Settings],
    cases: Mapping[str, Settings],
    expected: tuple[Expected, ...],
    rates: tuple[str, ...] = (),
    **more: Any,
) -> Study:
    """Return the study of one technique. In ``variants``, the twin is first and the technique last."""
    return Study(
        f"{technique} beside its twin without it",
        source,
        f"verdicts/{scenario}",
        variants,
        {name: Case(settings) for name, settings in cases.items()},
        expected,
        rates=rates,
        technique=technique,
        panels=FOREST,
        size_in=(7.2, 1.2 + 0.27 * len(expected)),
        **more,
    )


FOREST = (
    Panel(
        "Times better than the twin without it",
        kind="forest",
        x_label="twin's time / technique's time (bars: what is expected)",
    ),
)

DGT = _study(
    "DGT",
    "Zhou et al., FGCS 121, 2021: 19 to 37 % less training time",
    "dgt.yaml",
    {"TCP": {"order": "fifo", RATE: "0.03"}, "DGT": {RATE: "0.03"}},
    {"1 % loss": {}, "no loss": {"links[*].loss": "0"}},
    (
        Expected("rounds are at least 15 % shorter", "1 % loss", "round_s", low=1 / 0.85),
        Expected("accuracy after the same rounds at most a point below", "1 % loss", "accuracy", low=-1, points=True),
        Expected("rounds are at most 2 % longer", "no loss", "round_s", low=1 / 1.02),
    ),
    ("0.008", "0.03", "0.1"),
)
_LINK_EACH = (
    "{data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}, {name: c, workers: 1}], "
    "links: [{between: [a, b], rate: 20 Mbit/s, delay: 25 ms}, {between: [a, c], rate: 20 Mbit/s, delay: 40 ms}]}"
)
TSENGINE = _study(
    "TSEngine",
    "Zhou et al., IEEE TNSM 18(4), 2021",
    "tsengine.yaml",
    {"star": {"overlay": "star"}, "TSEngine": {"overlay": "{tier1: star, tier2: tsengine}"}},
    {"eight unequal links": {}, "a link each": {"topology": _LINK_EACH}},
    (
        Expected("rounds are at least 1.3 times shorter", "eight unequal links", "round_s", low=1.3),
        Expected("harm: rounds are longer", "a link each", "round_s", high=1 - A_DIFFERENCE),
    ),
)
P3 = _study(
    "P3",
    "Jayarajan et al., MLSys 2019: 25 to 66 % more throughput",
    "p3.yaml",
    {"FIFO": {"order": "{kind: fifo, overlap: layers}"}, "P3": {}},
    {"communication = step": {}, "fast links": {"links[*].rate": "1 Gbit/s"}},
    (
        Expected("rounds are at least 1.1 times shorter", "communication = step", "round_s", low=1.1),
        Expected("no difference above 2 %", "fast links", "round_s", 0.98, 1.02),
    ),
)
MULTI_GPS = _study(
    "MultiGPS",
    "GeoMX",
    "multi-gps.yaml",
    {"one server": {"shard": "hashed", "data_centers[central].global_servers": "1"}, "MultiGPS": {}},
    {"port of the server": {}, "links slower than the port": {"links[*].rate": "10 Mbit/s"}},
    (
        Expected("rounds are at least 1.5 times shorter", "port of the server", "round_s", low=1.5),
        Expected("no difference above 2 %", "links slower than the port", "round_s", 0.98, 1.02),
    ),
)


def _wan_bytes(each: StudyRun) -> int:
    """Return all bytes sent over the WAN, including headers and the first values."""
    transfers = each.run.tables["transfers"]
    return int(transfers.loc[transfers["tier"] == "wan", ["payload_bytes", "header_bytes"]].to_numpy().sum())


PARTIAL_PULL = _study(
    "Partial pull",
    "MXNet's row_sparse_pull; Kim et al., EuroSys 2019 (Parallax): 2.8 to 6 times",
    "partial-pull.yaml",
    {"whole tables": {"paradigm.pull": "all"}, "rows": {}},
    {"few rows a batch": {}, "all rows a batch": {"training.model.rows": "40", "training.data.categories": "20"}},
    (
        Expected("at least 5 times fewer bytes over the WAN", "few rows a batch", "all_wan_bytes", low=5),
        Expected("rounds are at least 5 times shorter", "few rows a batch", "round_s", low=5),
        Expected("the same accuracy", "few rows a batch", "accuracy", 0, 0, points=True),
        Expected("no difference above 5 % in bytes", "all rows a batch", "all_wan_bytes", 0.95, 1.05),
    ),
    columns={"all_wan_bytes": _wan_bytes},
)
_FAST_STORE = {
    "training.loading.rate": "1 Gbit/s",
    "training.loading.latency": "0.1 ms",
    "training.loading.decode": "1 us",
}
DATA_CACHE = _study(
    "Data cache",
    "Shi et al., MLSys 2021",
    "data-cache.yaml",
    {
        "no cache": {
            "training.loading.memory": "1 bytes",
            "training.loading.disk": "1 bytes",
            "training.loading.prefetch": "0",
        },
        "cache": {},
    },
    {"slow store": {}, "fast store": _FAST_STORE},
    (
        Expected("once warm, rounds are at least 1.5 times shorter", "slow store", "late_round_s", low=1.5),
        Expected("no difference above 5 %", "fast store", "late_round_s", 0.95, 1.05),
    ),
    columns={"late_round_s": lambda each: round_s(each, 30)},
)


def _optimizer_s(each: StudyRun) -> float:
    """Return the time (s) from the start of the optimizer's work to the end of the third round, at the slowest worker.

    It includes the messages by which workers gather each other's results.
    """
    computes = each.run.tables["computes"]
    rounds = each.run.tables["rounds"]
    mine = computes[(computes["work"] == "optimizer") & (computes["round"] == 2)]
    ends = rounds[rounds["round"] == 2].set_index("node")["t_s"]
    return float((ends - mine.groupby("node")["t0_s"].min()).max())


PARALLEL_OPTIMIZER = _study(
    "Parallel optimizer",
    "Shi et al., MLSys 2021",
    "parallel-optimizer.yaml",
    {"each takes all norms": {"paradigm.optimizer_work": "replicated"}, "shared": {}},
    {"LAN": {}, "WAN": {"topology.lan": "{rate: 20 Mbit/s, delay: 45 ms}"}},
    (
        Expected("the optimizer's part of a round is at least 1.2 times shorter", "LAN", "optimizer_s", low=1.2),
        Expected("harm: it is longer", "WAN", "optimizer_s", high=1 - A_DIFFERENCE),
    ),
    only_on=("simulate",),
    columns={"optimizer_s": _optimizer_s},
)
RINGS = _study(
    "Hierarchical rings",
    "Cho et al., 2019 (BlueConnect); Mikami et al., 2018 (2D torus)",
    "rings.yaml",
    {"ring": {"paradigm.algorithm": "ring"}, "2D torus": {"paradigm.algorithm": "torus2d"}, "BlueConnect": {}},
    {"two data centres": {}, "one worker each": {"data_centers[*].workers": "1"}},
    (
        Expected("BlueConnect: rounds are at least 1.5 times shorter", "two data centres", "round_s", low=1.5),
        Expected(
            "2D torus: rounds are at least 1.5 times shorter",
            "two data centres",
            "round_s",
            low=1.5,
            technique="2D torus",
        ),
        Expected("no difference above 2 %", "one worker each", "round_s", 0.98, 1.02),
    ),
)

FAST = {"links[*].rate": "1 Gbit/s", "links[*].delay": "1 ms", "device.step_time": "100 ms"}
EQUAL = {"data_centers[west].device": "{speed: 1}"}
RATES = ("0.01", "0.03", "0.1", "0.3")
SUMS = ("0.05", "0.1", "0.2", "0.4")
FSA: Settings = {
    "codec": "none",
    "sync": "fsa",
    "optimizer": "{kind: adam, learning_rate: 0.03}",
    RATE: "0.03",
    "training.evaluate_every": "1",
}


def _on_slow_wan(technique: str, source: str, scenario: str, low: float, slow: str = "slow WAN") -> Study:
    return _study(
        technique,
        source,
        f"{scenario}.yaml",
        {"FSA": FSA, technique: {RATE: "0.03"}},
        {slow: {}, "fast WAN": FAST},
        (
            Expected(f"at the target at least {low:g} times sooner", slow, "time_to_target_s", low=low),
            Expected("not sooner", "fast WAN", "time_to_target_s", high=1.05),
        ),
        RATES,
    )


FP16 = _on_slow_wan("FP16", "GeoMX", "fp16", 1.3)
BI_SPARSE = _on_slow_wan("Bi-Sparse", "GeoMX", "bi-sparse", 1.5, "2 Mbit/s")
MPQ = _on_slow_wan("MPQ", "GeoMX", "mpq", 1.5, "2 Mbit/s")
HFA = _on_slow_wan("HFA", "Liu et al., ICC 2020: 2 to 5 times", "hfa", 2)
DILOCO = _on_slow_wan("DiLoCo", "Douillard et al., 2023", "diloco", 2)
ESYNC = _study(
    "ESync",
    "Li et al., IEEE TSC 15(4), 2022: 2 to 27 times sooner",
    "esync.yaml",
    {"FSA": FSA, "ESync": {RATE: "0.03"}},
    {"one slow data centre": {}, "equal devices": {**FAST, **EQUAL}},
    (
        Expected("at the target at least 2 times sooner", "one slow data centre", "time_to_target_s", low=2),
        Expected("rounds are as long as FSA's", "equal devices", "round_s", 0.98, 1.02),
    ),
    RATES,
)
MIXED_SYNC = _study(
    "MixedSync",
    "GeoMX; Zheng et al., ICML 2017 (DC-ASGD)",
    "mixed-sync.yaml",
    {
        "FSA, SGD": {"sync": "fsa", "optimizer": "{kind: sgd, learning_rate: 0.2}", RATE: "0.2"},
        "MixedSync": {RATE: "0.2"},
    },
    {"one of three slow": {}, "three equal": EQUAL},
    (
        Expected("at the target at least 1.5 times sooner", "one of three slow", "time_to_target_s", low=1.5),
        Expected("not sooner", "three equal", "time_to_target_s", high=1.05),
    ),
    SUMS,
)
HITOPK = _study(
    "HiTopKComm",
    "Shi et al., MLSys 2021: 25 to 40 % faster",
    "hitopk.yaml",
    {
        "dense": {
            "paradigm": "{kind: allreduce, algorithm: blueconnect}",
            "optimizer": "{kind: adam, learning_rate: 0.03}",
            RATE: "0.03",
        },
        "flat top-k": {"paradigm.algorithm": "flat_topk", RATE: "0.01"},
        "HiTopKComm": {RATE: "0.03"},
    },
    {"four workers a site": {}, "fast network": FAST},
    (
        Expected(
            "than dense: at the target at least 1.25 times sooner", "four workers a site", "time_to_target_s", low=1.25
        ),
        Expected(
            "than flat top-k: at least 1.25 times sooner",
            "four workers a site",
            "time_to_target_s",
            low=1.25,
            twin="flat top-k",
        ),
        Expected("not sooner than dense", "fast network", "time_to_target_s", high=1.05),
    ),
    ("0.003", "0.01", "0.03", "0.1"),
)
_ALL_REDUCE = {"paradigm": "allreduce", RATE: "0.03"}
GOSSIP = _study(
    "Gossip",
    "Lian et al., NeurIPS 2017 (D-PSGD)",
    "gossip.yaml",
    {
        "all-reduce, restart": {
            **_ALL_REDUCE,
            "recovery": "{on_failure: restart, max_restarts: 20}",
            "checkpoint.every": "2",
        },
        "all-reduce, continue": _ALL_REDUCE,
        "gossip": {RATE: "0.03"},
    },
    {"nodes go and come": {}, "no node is lost": {"faults": "[]"}},
    (
        Expected("at the target at least 1.5 times sooner", "nodes go and come", "time_to_target_s", low=1.5),
        Expected(
            "all-reduce that continues: at least 1.5 times sooner",
            "nodes go and come",
            "time_to_target_s",
            low=1.5,
            technique="all-reduce, continue",
        ),
        Expected("at most 1.3 times sooner", "no node is lost", "time_to_target_s", high=1.3),
    ),
    ("0.003", "0.01", "0.03", "0.1"),
)

ALL = tuple(each for each in list(globals().values()) if isinstance(each, Study))
STUDY = Study(
    "Every technique beside its twin without it",
    "scenarios/verdicts",
    parts=ALL,
    panels=FOREST,
    size_in=(7.2, 1.2 + 0.27 * sum(len(each.expected) for each in ALL)),
)
