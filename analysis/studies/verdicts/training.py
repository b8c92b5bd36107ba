"""Techniques that change what is computed or sent: the time to the same accuracy, each at its best learning rate."""

from __future__ import annotations

from analysis.studies.study import Settings
from analysis.studies.verdicts.comparison import RATE, Expected, TwinComparison

FAST = {"links[*].rate": "1 Gbit/s", "links[*].delay": "1 ms", "device.step_time": "100 ms"}
EQUAL = {"data_centers[west].device": "{speed: 1}"}
RATES = ("0.01", "0.03", "0.1", "0.3")
SUMS = ("0.05", "0.1", "0.2", "0.4")
FSA: Settings = {"codec": "none", "sync": "fsa", "optimizer": "{kind: adam, learning_rate: 0.03}", RATE: "0.03",
                 "training.evaluate_every": "1"}  # fmt: skip


def _on_slow_wan(technique: str, source: str, scenario: str, low: float, slow: str = "slow WAN") -> TwinComparison:
    return TwinComparison(
        technique, source, f"verdicts/{scenario}.yaml", {"FSA": FSA, technique: {RATE: "0.03"}},
        {slow: {}, "fast WAN": FAST},
        (Expected(f"at the target at least {low:g} times sooner", slow, "to_target_s", low=low),
         Expected("not sooner", "fast WAN", "to_target_s", high=1.05)), RATES,
    )  # fmt: skip


FP16 = _on_slow_wan("FP16", "GeoMX", "fp16", 1.3)
BI_SPARSE = _on_slow_wan("Bi-Sparse", "GeoMX", "bi-sparse", 1.5, "2 Mbit/s")
MPQ = _on_slow_wan("MPQ", "GeoMX", "mpq", 1.5, "2 Mbit/s")
HFA = _on_slow_wan("HFA", "Liu et al., ICC 2020: 2 to 5 times", "hfa", 2)
DILOCO = _on_slow_wan("DiLoCo", "Douillard et al., 2023", "diloco", 2)
ESYNC = TwinComparison(
    "ESync", "Li et al., IEEE TSC 15(4), 2022: 2 to 27 times sooner", "verdicts/esync.yaml",
    {"FSA": FSA, "ESync": {RATE: "0.03"}}, {"one slow data centre": {}, "equal devices": {**FAST, **EQUAL}},
    (Expected("at the target at least 2 times sooner", "one slow data centre", "to_target_s", low=2),
     Expected("rounds are as long as FSA's", "equal devices", "round_s", 0.98, 1.02)), RATES,
)  # fmt: skip
MIXED_SYNC = TwinComparison(
    "MixedSync", "GeoMX; Zheng et al., ICML 2017 (DC-ASGD)", "verdicts/mixed-sync.yaml",
    {"FSA, SGD": {"sync": "fsa", "optimizer": "{kind: sgd, learning_rate: 0.2}", RATE: "0.2"},
     "MixedSync": {RATE: "0.2"}},
    {"one of three slow": {}, "three equal": EQUAL},
    (Expected("at the target at least 1.5 times sooner", "one of three slow", "to_target_s", low=1.5),
     Expected("not sooner", "three equal", "to_target_s", high=1.05)), SUMS,
)  # fmt: skip
HITOPK = TwinComparison(
    "HiTopKComm", "Shi et al., MLSys 2021: 25 to 40 % faster", "verdicts/hitopk.yaml",
    {"dense": {"paradigm": "{kind: allreduce, algorithm: blueconnect}",
               "optimizer": "{kind: adam, learning_rate: 0.03}", RATE: "0.03"},
     "flat top-k": {"paradigm.algorithm": "flat_topk", RATE: "0.03"}, "HiTopKComm": {RATE: "0.01"}},
    {"four workers a site": {}, "fast network": FAST},
    (Expected("than dense: at the target at least 1.25 times sooner", "four workers a site", "to_target_s", low=1.25),
     Expected("than flat top-k: at least 1.25 times sooner", "four workers a site", "to_target_s", low=1.25,
              twin="flat top-k"),
     Expected("not sooner than dense", "fast network", "to_target_s", high=1.05)), ("0.003", "0.01", "0.03", "0.1"),
)  # fmt: skip
_ALL_REDUCE = {"paradigm": "allreduce", RATE: "0.03"}
GOSSIP = TwinComparison(
    "Gossip", "Lian et al., NeurIPS 2017 (D-PSGD)", "verdicts/gossip.yaml",
    {"all-reduce, restart": {**_ALL_REDUCE, "recovery": "{on_failure: restart, max_restarts: 20}",
                             "checkpoint.every": "2"},
     "all-reduce, continue": _ALL_REDUCE, "gossip": {RATE: "0.03"}},
    {"nodes go and come": {}, "no node is lost": {"faults": "[]"}},
    (Expected("at the target at least 1.5 times sooner", "nodes go and come", "to_target_s", low=1.5),
     Expected("all-reduce that continues: at least 1.5 times sooner", "nodes go and come", "to_target_s", low=1.5,
              technique="all-reduce, continue"),
     Expected("at most 1.3 times sooner", "no node is lost", "to_target_s", high=1.3)),
    ("0.003", "0.01", "0.03", "0.1"),
)  # fmt: skip
