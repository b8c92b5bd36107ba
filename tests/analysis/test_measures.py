"""Measures against runs with a known course, worked out by hand."""

from dataclasses import replace

import pandas as pd
import pytest

from analysis.figures.compare import round_split
from analysis.load import StoredRun, Tables, load_run
from analysis.metrics import throughput, waiting, wan_bytes, wan_of_training
from analysis.studies.columns import computing_share, samples
from analysis.studies.study import StudyRun
from analysis.waits import matrix
from testbed.results.summary import covered_round_time_s
from tests.results.fake_run import make_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[StoredRun]:
    folder = tmp_path_factory.mktemp("runs")
    return [load_run(make_run(folder / f"run{seed}", seed=seed)) for seed in (1, 2)]


def test_throughput_is_the_sum_of_the_workers_rates(runs: list[StoredRun]) -> None:
    """Virginia's rounds are shorter than the others', who wait for their values over the WAN."""
    sums = runs[0].tables["rounds"].groupby("node")[["samples", "duration_s"]].sum()
    assert len(sums) == 6
    assert throughput(runs[0]) == pytest.approx((sums["samples"] / sums["duration_s"]).sum())
    silent = runs[0].tables["rounds"].assign(samples=pd.array([None] * len(runs[0].tables["rounds"]), dtype="Int64"))
    assert throughput(with_table(runs[0], "rounds", silent)) is None, "a user's script does not say"


def test_everybody_waits_for_the_slow_data_centre(runs: list[StoredRun]) -> None:
    """Its steps take 30 ms longer, and virginia's push needs no WAN."""
    between = matrix(runs[0].tables, runs[0].plan)
    assert between["tokyo"].tolist() == pytest.approx([0.128, 0, 0.030])
    assert between.drop(columns="tokyo").to_numpy().sum() == 0


def test_messages_about_no_key_are_no_wan_bytes_of_training(runs: list[StoredRun]) -> None:
    """As in the run's own result: the scheduler's messages count as set-up."""
    assert runs[0].result is not None
    transfers = runs[0].tables["transfers"]
    notice = transfers.iloc[[0]].assign(tier="wan", key=-1, round=0, payload_bytes=128)
    assert len(wan_of_training(pd.concat([transfers, notice]))) == len(wan_of_training(transfers))
    assert wan_bytes(runs[0]) == sum(site["up"] for site in runs[0].result["wan_payload_bytes"].values())


def test_a_folded_worker_counts_for_all_that_it_stands_for(runs: list[StoredRun]) -> None:
    own = throughput(alone(runs[0], "tokyo/worker0"))
    assert throughput(folded(runs[0], 15)) == pytest.approx((throughput(runs[0]) or 0.0) + 14 * (own or 0.0))
    of_one = waiting(alone(runs[0], "tokyo/worker0"))
    assert waiting(folded(runs[0], 10**9)) == pytest.approx(of_one, abs=1e-6)  # the mean of many like it
    assert waiting(folded(runs[0], 1)) == waiting(runs[0])
    parts = round_split([folded(runs[0], 10**9), alone(runs[0], "tokyo/worker0")])
    assert parts.iloc[0].to_numpy() == pytest.approx(parts.iloc[1].to_numpy(), abs=1e-6)
    each, many = (StudyRun("", "", {}, 1, run) for run in (runs[0], folded(runs[0], 15)))
    one = StudyRun("", "", {}, 1, alone(runs[0], "tokyo/worker0"))
    assert samples(many) == samples(each) + 14 * samples(one)
    assert computing_share(many) > computing_share(each)  # tokyo's compute longer than the others


def test_the_parts_add_up_to_the_mean_over_workers_though_some_make_more_rounds(runs: list[StoredRun]) -> None:
    """As in asynchronous runs; the tables beside a figure have that mean as the time of a round."""
    rounds = runs[0].tables["rounds"]
    quicker = with_table(runs[0], "rounds", rounds[rounds["node"].str.startswith("virginia") | (rounds["round"] == 0)])
    parts = round_split([quicker]).iloc[0]
    assert parts.sum() == pytest.approx(covered_round_time_s(quicker.tables["rounds"]))


def folded(run: StoredRun, count: int) -> StoredRun:
    """As if tokyo's first worker stood for so many."""
    nodes = run.tables["nodes"]
    counts = nodes["stands_for"].mask(nodes["node"] == "tokyo/worker0", count)
    return with_table(run, "nodes", nodes.assign(stands_for=counts))


def alone(run: StoredRun, node: str) -> StoredRun:
    rounds = run.tables["rounds"]
    return with_table(run, "rounds", rounds[rounds["node"] == node])


def with_table(run: StoredRun, name: str, table: pd.DataFrame) -> StoredRun:
    return replace(run, tables=Tables(run.path, {**run.tables, name: table}))
