"""Measures against runs with a known course: by hand, with their units, over seeds."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from analysis.figures.compare import round_split
from analysis.load import StoredRun, load_run
from analysis.measures import MEASURES, measured, staleness, throughput, wan_rate
from analysis.metrics import wan_of_training
from analysis.studies.columns import computing_share, samples
from analysis.studies.study import StudyRun
from analysis.waits import matrix, pairs
from tests.results.fake_run import SITES, make_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[StoredRun]:
    folder = tmp_path_factory.mktemp("runs")
    return [load_run(make_run(folder / f"run{seed}", seed=seed)) for seed in (1, 2)]


def test_every_measure_has_a_value_unit_and_meaning(runs: list[StoredRun]) -> None:
    frame = measured(runs, target=0.5)
    for name, measure in MEASURES.items():
        assert measure.unit and measure.meaning
        assert frame[name].notna().all(), name


def test_parts_of_the_critical_path_add_up_to_the_longest_round(runs: list[StoredRun]) -> None:
    rounds = runs[0].tables["rounds"]
    longest = rounds.groupby("round")["duration_s"].max().mean()
    row = measured(runs[:1]).iloc[0]
    assert sum(row[f"critical_{part}_s"] for part in ("compute", "lan", "wan", "waiting")) == pytest.approx(longest)


def test_throughput_is_the_sum_of_the_workers_rates(runs: list[StoredRun]) -> None:
    """Virginia's rounds are shorter than the others', who wait for their values over the WAN."""
    sums = runs[0].tables["rounds"].groupby("node")[["samples", "duration_s"]].sum()
    assert len(sums) == 6
    assert throughput(runs[0]) == pytest.approx((sums["samples"] / sums["duration_s"]).sum())


def test_wan_rate_counts_until_the_first_worker_is_done(runs: list[StoredRun]) -> None:
    rounds, transfers = runs[0].tables["rounds"], runs[0].tables["transfers"]
    end_s = rounds.groupby("node")["t_s"].max().min()
    wan = transfers[(transfers["tier"] == "wan") & (transfers["round"] >= 0) & (transfers["t_s"] <= end_s)]
    assert wan_rate(runs[0]) == pytest.approx(wan["payload_bytes"].sum() / (end_s - runs[0].start_s))


def test_staleness_is_that_of_updates(runs: list[StoredRun]) -> None:
    updates = runs[0].tables["updates"].iloc[:4].assign(staleness=pd.array([0, 2, 4, None], dtype="Int64"))
    assert staleness(replace(runs[0], tables={**runs[0].tables, "updates": updates})) == 2.0
    assert staleness(replace(runs[0], tables={**runs[0].tables, "updates": updates.iloc[:0]})) is None


def test_everybody_waits_for_the_slow_data_centre(runs: list[StoredRun]) -> None:
    waits = pairs(runs[0].tables, runs[0].plan)
    between = matrix(waits, list(SITES))
    assert between["tokyo"].drop("tokyo").gt(0).all()  # its steps take 30 ms longer
    assert between.drop(columns="tokyo").to_numpy().sum() == pytest.approx(0, abs=1e-6)


def test_nobody_waits_where_nobody_has_to(runs: list[StoredRun]) -> None:
    plan = runs[0].plan
    loose = {**plan, "technique": {**plan["technique"], "sync_tier1": {"kind": "tap"}, "sync_tier2": {"kind": "tap"}}}
    assert pairs(runs[0].tables, loose).empty


def test_messages_about_no_key_are_no_wan_bytes_of_training(runs: list[StoredRun]) -> None:
    """As in the run's own result: the scheduler's messages count as set-up."""
    assert runs[0].result is not None
    transfers = runs[0].tables["transfers"]
    notice = transfers.iloc[[0]].assign(tier="wan", key=-1, round=0, payload_bytes=128)
    assert len(wan_of_training(pd.concat([transfers, notice]))) == len(wan_of_training(transfers))
    assert MEASURES["wan_bytes"].of(runs[0]) == sum(site["up"] for site in runs[0].result["wan_payload_bytes"].values())


def test_bytes_of_a_run_that_was_resumed_are_those_of_its_own_rounds(runs: list[StoredRun]) -> None:
    rounds = runs[0].tables["rounds"]
    later = with_table(runs[0], "rounds", rounds.assign(round=rounds["round"] + 100))
    measure = MEASURES["wan_bytes_per_round"].of
    assert measure(later) == measure(runs[0])


def test_a_folded_worker_counts_for_all_that_it_stands_for(runs: list[StoredRun]) -> None:
    own = MEASURES["throughput"].of(alone(runs[0], "tokyo/worker0"))
    assert throughput(folded(runs[0], 15)) == pytest.approx((throughput(runs[0]) or 0.0) + 14 * (own or 0.0))
    for name in ("compute_share", "waiting_share"):  # of many like one, the means are that one's
        measure = MEASURES[name].of
        assert measure(folded(runs[0], 10**9)) == pytest.approx(measure(alone(runs[0], "tokyo/worker0")), abs=1e-6)
        assert measure(folded(runs[0], 1)) == measure(runs[0])
    parts = round_split([folded(runs[0], 10**9), alone(runs[0], "tokyo/worker0")])
    assert parts.iloc[0].to_numpy() == pytest.approx(parts.iloc[1].to_numpy(), abs=1e-6)
    each, many = (StudyRun("", "", {}, 1, run) for run in (runs[0], folded(runs[0], 15)))
    one = StudyRun("", "", {}, 1, alone(runs[0], "tokyo/worker0"))
    assert samples(many) == samples(each) + 14 * samples(one)
    assert computing_share(many) > computing_share(each)  # tokyo's compute longer than the others


def folded(run: StoredRun, count: int) -> StoredRun:
    """As if tokyo's first worker stood for so many."""
    nodes = run.tables["nodes"]
    counts = nodes["stands_for"].mask(nodes["node"] == "tokyo/worker0", count)
    return with_table(run, "nodes", nodes.assign(stands_for=counts))


def alone(run: StoredRun, node: str) -> StoredRun:
    rounds = run.tables["rounds"]
    return with_table(run, "rounds", rounds[rounds["node"] == node])


def with_table(run: StoredRun, name: str, table: pd.DataFrame) -> StoredRun:
    tables: Any = {**run.tables, name: table}
    return replace(run, tables=tables)
