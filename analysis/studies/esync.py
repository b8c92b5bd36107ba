"""ESync: workers of different speeds end a round at the same time, as each makes as many local steps as fit."""

from __future__ import annotations

from analysis.confidence import A_DIFFERENCE
from analysis.identity import look_of
from analysis.metrics import wan_rate
from analysis.studies.columns import ratio_spread
from analysis.studies.study import Case, Expected, Panel, Study

_LONGER = {"training.rounds": "150", "training.evaluate_every": "5"}  # asynchronous rounds are shorter
IID = "IID data"
BY_CLASS = "data split by class"
IDEAL = (4 * 10 + 2 * 1) / 6  # mean speed relative to a slow worker: four of six are ten times as fast as the others
SLACK = 0.99


def _over(column: str, more: str, less: str, low: float, high: float = float("inf")) -> Expected:
    what = {"throughput": "throughput", "traffic_mb_per_s": "WAN traffic per second"}[column]
    return Expected(f"{what}: {more} over {less} is above {low:.3g}", IID, column, low, high, twin=more, technique=less)


STUDY = Study(
    title="ESync: synchronous training on unequal workers",
    source="Li, Zhou, Zhou, Yu, Xu, Sun, IEEE TSC 15(4), 2022",
    scenario="papers/esync.yaml",
    variants={
        "SSGD": {"sync": "fsa", "optimizer": "{kind: sgd, learning_rate: 0.05}"},
        "ASGD": {"sync": "tap", "optimizer": "{kind: sgd, learning_rate: 0.05}", **_LONGER},
        "DC-ASGD": {"sync": "tap", "optimizer": "{kind: dcasgd, learning_rate: 0.05, compensation: 0.04}", **_LONGER},
        "ESync": {"sync": "esync", "optimizer": "{kind: sgd, learning_rate: 0.1, at: worker}"},
    },
    cases={IID: Case({"training.split": "iid"}), BY_CLASS: Case({"training.split": "by_class"})},
    expected=(
        _over("throughput", "ESync", "ASGD", 1 + A_DIFFERENCE),
        _over("throughput", "ASGD", "DC-ASGD", SLACK),
        _over("throughput", "DC-ASGD", "SSGD", 1 + A_DIFFERENCE),
        _over("throughput", "ESync", "SSGD", 0.7 * IDEAL, 1.3 * IDEAL),
        _over("traffic_mb_per_s", "ASGD", "DC-ASGD", SLACK),
        _over("traffic_mb_per_s", "DC-ASGD", "SSGD", 1 + A_DIFFERENCE),
        _over("traffic_mb_per_s", "SSGD", "ESync", 1 + A_DIFFERENCE),
        Expected("ESync: workers' shares of computing differ by at most 0.1", IID, "ratio_spread", 0, 0.1, alone=True),
        Expected(
            "SSGD: they differ by more than 0.5, as fast workers idle",
            IID,
            "ratio_spread",
            0.5,
            1,
            alone=True,
            technique="SSGD",
        ),
        Expected("at 90 % at least 2 times sooner than SSGD", IID, "time_to_target_s", 2),
        Expected("in the end more accurate than ASGD", BY_CLASS, "accuracy", A_DIFFERENCE, points=True, twin="ASGD"),
    ),
    target=0.9,
    columns={"ratio_spread": ratio_spread, "traffic_mb_per_s": lambda each: (wan_rate(each.run) or 0.0) / 1e6},
    looks={
        "ESync": look_of("esync"),
        "SSGD": look_of("fsa", "SSGD"),
        "ASGD": look_of("tap", "ASGD"),
        "DC-ASGD": look_of("dcasgd"),
    },
    panels=(
        Panel(IID, kind="curve", where={"sweep": IID}),
        Panel(BY_CLASS, kind="curve", where={"sweep": BY_CLASS}),
        Panel("Throughput", "throughput", kind="bar", where={"sweep": IID}, y_label="samples/s"),
        Panel("WAN traffic", "traffic_mb_per_s", kind="bar", where={"sweep": IID}, y_label="MB/s"),
        Panel("Time to 90 %, IID", "time_to_target_s", kind="bar", where={"sweep": IID}, y_label="s"),
        Panel(
            "Unequal shares of computing",
            "ratio_spread",
            kind="bar",
            where={"sweep": IID},
            y_label="largest less smallest share of a round",
        ),
    ),
    rows=2,
    size_in=(9.4, 5.4),
)
