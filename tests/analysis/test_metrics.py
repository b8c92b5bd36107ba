"""Loading runs, the metrics of papers, and the comparison table."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import compare, metrics
from analysis.load import StoredRun, load
from analysis.report.conclusion import fallen
from testbed.display.summary import comparison_table
from testbed.target import ACCURACY, Target
from tests.results.fake_run import PAYLOAD, make_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "emulated")
    make_run(folder / "simulated", back_end="simulate")
    make_run(folder / "hfa", sync="hfa", rounds=4)
    return folder


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[StoredRun]:
    return load([folder / name for name in ("emulated", "simulated", "hfa")])


def test_time_to_a_target_and_speed_up(runs: list[StoredRun]) -> None:
    # rounds of 290 ms, an evaluation gap of 300 ms after every second one
    assert metrics.time_to(runs[0], Target(ACCURACY, 0.7)) == pytest.approx(4 * 0.290 + 0.3, abs=1e-5)
    assert metrics.time_to(runs[0], Target(ACCURACY, 0.999)) is None
    assert metrics.speed_up(10.0, 4.0) == 2.5
    assert metrics.speed_up(None, 4.0) is None


def test_accuracy_over_bytes_counts_each_transfer_once(runs: list[StoredRun]) -> None:
    curve = metrics.accuracy_curve(runs[0])
    per_round = 2 * 2 * sum(PAYLOAD.values())  # two parties, up and down
    assert curve["wan_bytes"].tolist() == [2 * per_round, 4 * per_round, 6 * per_round, 8 * per_round]


def test_simulated_and_emulated_of_one_scenario_find_each_other(runs: list[StoredRun]) -> None:
    (error,) = metrics.simulation_errors(runs)
    assert error["error"] == 0.0
    assert error["name"] == "quickstart"
    assert metrics.relative_error(1.1, 1.0) == pytest.approx(0.1)
    assert metrics.simulation_errors(runs[1:]) == []


def test_both_models_of_the_network_are_compared_with_the_emulated_run(runs: list[StoredRun]) -> None:
    plan = runs[1].plan
    packets = replace(runs[1], plan={**plan, "simulation": {**plan["simulation"], "network": "packets"}})
    assert [row["network"] for row in metrics.simulation_errors([*runs, packets])] == ["flows", "packets"]


def test_comparison_rows_and_csv(runs: list[StoredRun], tmp_path: Path) -> None:
    rows = compare.comparison(runs)
    assert [row["label"] for row in rows] == ["FSA, emulated", "FSA, simulated", "HFA, emulated"]
    assert [row["speed_up"] for row in rows] == [1.0, 1.0, None], "the short run never reached the target"
    table, latex, picture, paper = compare.write(runs, rows, tmp_path / "out")
    with open(table, newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["technique"] for row in read] == ["fsa", "fsa", "hfa"]
    assert float(read[0]["wan_bytes"]) == 8 * 2 * 2 * sum(PAYLOAD.values())
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert paper.read_bytes()[:4] == b"%PDF"
    lines = latex.read_text().splitlines()
    assert (lines[0], lines[-1]) == (r"\begin{tabular}{@{}lrrrrr@{}}", r"\end{tabular}")
    body = [line for line in lines if line.endswith(r" \\")]
    assert len(body) == 5
    assert {line.count(" & ") for line in body} == {5}
    assert "accuracy & to target" in body[0] and r"at end (\%) & (s)" in body[1]


def test_latex_escapes_what_means_something_there(runs: list[StoredRun]) -> None:
    row = {**compare.comparison(runs[:1])[0], "label": "a_b + 5 % & c", "time_to_target_s": None}
    assert r"a\_b $+$ 5 \% \& c" in compare.as_latex([row])
    assert compare.latex_text(r"~/x^{2}\y>1") == r"\textasciitilde{}/x\textasciicircum{}\{2\}\textbackslash{}y$>$1"
    assert " & -- & " in compare.as_latex([row, {**row, "time_to_target_s": 1.0}])


def test_a_run_that_ended_below_the_target_it_had_reached_is_told(runs: list[StoredRun]) -> None:
    rows = compare.comparison(runs)
    assert not [*fallen(rows)]
    rows[1] = {**rows[1], "accuracy": 0.646}
    assert [*fallen(rows)] == ["Below the target at the end, after having reached it: FSA, simulated (64.6 %)."]
    assert "WAN bytes of the whole run" in str(comparison_table(rows).title)


def test_a_run_that_missed_the_target_has_no_speed_up(runs: list[StoredRun]) -> None:
    """The short run never reached 80 %; a shorter round would say nothing of it."""
    (line,) = [line for line in compare.as_latex(compare.comparison([runs[0], runs[2]])).splitlines() if "HFA" in line]
    assert line.split(" & ")[3] == "--"
    plain = [
        replace(run, plan={**run.plan, "training": {**run.plan["training"], "target_accuracy": None}}) for run in runs
    ]
    assert [row["speed_up_of"] for row in compare.comparison(plain)] == ["step_time_s"] * 3
