"""Loading runs, the metrics of papers, and the comparison table."""

import csv
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analysis import compare, identity, metrics
from analysis.load import StoredRun, load, load_run
from testbed.errors import ScenarioError, TestbedError
from tests.for_each import for_each
from tests.results.fake_run import PAYLOAD, make_plan, make_run


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


def test_a_run_without_tables_is_read_from_its_events(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "emulated", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "tables")
    assert load_run(tmp_path / "run").tables["rounds"].equals(load_run(folder / "emulated").tables["rounds"])


def test_a_result_changed_by_hand_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "emulated", tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    path.write_text(path.read_text().replace('"accuracy": 0.9305', '"accuracy": 0.9905'))
    with pytest.raises(TestbedError, match="was changed after the run"):
        load_run(tmp_path / "run")


def test_time_to_accuracy_and_speed_up(runs: list[StoredRun]) -> None:
    # rounds of 290 ms, an evaluation gap of 300 ms after every second one
    assert metrics.time_to_accuracy(runs[0], 0.7) == pytest.approx(4 * 0.290 + 0.3, abs=1e-5)
    assert metrics.time_to_accuracy(runs[0], 0.999) is None
    assert metrics.speed_up(10.0, 4.0) == 2.5
    assert metrics.speed_up(None, 4.0) is None


def test_accuracy_over_bytes_counts_each_transfer_once(runs: list[StoredRun]) -> None:
    curve = metrics.accuracy_curve(runs[0])
    per_round = 2 * 2 * sum(PAYLOAD.values())  # two parties, up and down
    assert curve["wan_bytes"].tolist() == [2 * per_round, 4 * per_round, 6 * per_round, 8 * per_round]


def test_confidence_interval_over_seeds() -> None:
    mean = metrics.mean_of([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (mean.value, mean.count) == (3.0, 5)
    assert mean.half_width == pytest.approx(1.96324, abs=1e-5)  # t(0.975, 4) = 2.776445, s = 1.581139
    assert metrics.mean_of([7.0]).half_width == math.inf
    with pytest.raises(ValueError, match="no values"):
        metrics.mean_of([])


def test_utilisation_and_waiting(runs: list[StoredRun]) -> None:
    used = metrics.utilisation(runs[0].tables["links"]).set_index("link")
    assert 0.5 < used.loc["virginia>tokyo", "utilisation"] < 0.7  # 96 % of the rate in two samples out of three


def test_a_link_is_used_while_training_goes_on() -> None:
    """An emulated link is monitored while nodes start, and until they have ended: then it carries nothing."""
    samples = pd.DataFrame({"link": "a>b", "t_s": [0.5, 4.5, 5.0, 6.0, 9.0], "configured_bps": 10e6,
                            "achieved_bps": [math.nan, 0.0, 4e6, 8e6, 0.0],
                            "interval_s": [math.nan, 4.0, 0.5, 1.0, 3.0]})  # fmt: skip
    (whole,) = metrics.utilisation(samples)["utilisation"]
    (training,) = metrics.utilisation(samples, 4.75, 6.0)["utilisation"]
    assert whole == pytest.approx((0.5 * 0.4 + 0.8) / 8.5)
    assert training == pytest.approx((0.25 * 0.4 + 0.8) / 1.25)
    assert metrics.utilisation(samples, 20.0, 30.0).empty


def test_simulated_and_emulated_of_one_scenario_find_each_other(runs: list[StoredRun]) -> None:
    (error,) = metrics.simulation_errors(runs)
    assert error["error"] == 0.0
    assert error["name"] == "quickstart"
    assert metrics.relative_error(1.1, 1.0) == pytest.approx(0.1)
    assert metrics.simulation_errors(runs[1:]) == []


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
    assert (lines[0], lines[-1]) == (r"\begin{tabular}{lrrrrrrrrr}", r"\end{tabular}")
    body = [line for line in lines if line.endswith(r" \\")]
    assert len(body) == 4
    assert {line.count(" & ") for line in body} == {9}
    assert r"accuracy (\%)" in body[0]


def test_latex_escapes_what_means_something_there(runs: list[StoredRun]) -> None:
    row = {**compare.comparison(runs[:1])[0], "label": "a_b + 5 % & c", "time_to_target_s": None}
    assert r"a\_b $+$ 5 \% \& c" in compare.as_latex([row])
    assert compare.latex_text(r"~/x^{2}\y>1") == r"\textasciitilde{}/x\textasciicircum{}\{2\}\textbackslash{}y$>$1"
    assert " & -- & " in compare.as_latex([row])


def test_a_latex_table_says_which_runs_were_not_done(runs: list[StoredRun]) -> None:
    done = compare.comparison(runs[:1])[0]
    text = compare.as_latex([done, done | {"run": "other", "status": "interrupted"}])
    assert "% other: interrupted\n" in text and f"{done['run']}: " not in text


def test_unfinished_runs_cannot_be_compared(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "emulated", tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(ScenarioError, match="has no result"):
        compare.comparison(load([tmp_path / "run"]))


def test_identity_names_what_is_not_plain() -> None:
    plan = json.loads(json.dumps({"technique": {axis: {"kind": "none"} for axis in ("codec_tier1", "codec_tier2")}}))
    axes = {"paradigm": "hips", "sync_tier1": "fsa", "sync_tier2": "hfa", "order": "p3", "overlay_tier1": "star",
            "overlay_tier2": "star", "shard": "hashed"}  # fmt: skip
    plan["technique"] |= {axis: {"kind": kind} for axis, kind in axes.items()}
    assert identity.technique_of(plan) == "hfa+p3"
    assert identity.technique("hfa+p3").label == "HFA + P3"


def test_every_technique_looks_different() -> None:
    looks = list(identity.TECHNIQUES.values())
    assert len({(look.color, look.line) for look in looks}) == len(looks), "lines without markers"
    assert len({(look.color, look.marker) for look in looks}) == len(looks), "markers without lines"
    assert len({look.label for look in looks}) == len(looks)


def test_runs_that_look_alike_are_told_apart(runs: list[StoredRun]) -> None:
    from testbed.plan.model import to_json

    plan = json.loads(to_json(make_plan()))
    looks = identity.of_runs([plan, plan, plan])
    assert len({look.color for look in looks}) == 3
    assert looks[0].label == "FSA, emulated, 1"


def test_a_run_that_missed_the_target_has_no_speed_up(runs: list[StoredRun]) -> None:
    """The short run never reached 80 %; a shorter round would say nothing of it."""
    (line,) = [line for line in compare.as_latex(compare.comparison([runs[0], runs[2]])).splitlines() if "HFA" in line]
    assert line.split(" & ")[7] == "--"
    plain = [
        replace(run, plan={**run.plan, "training": {**run.plan["training"], "target_accuracy": None}}) for run in runs
    ]
    assert [row["speed_up_of"] for row in compare.comparison(plain)] == ["step_time_s"] * 3


def test_ratios_in_pairs_stay_above_zero() -> None:
    few = metrics.ratio_of([3.0, 12.0, 33.0], [1.5, 24.0, 16.5])
    assert few.low > 0 and few.value == pytest.approx(0.5 ** (1 / 3)) and few.high > 1
    assert metrics.ratio_of([1.0], [2.0]) == metrics.Ratio(2.0, 0.0, math.inf, 1)
    many = metrics.ratio_of([1.0] * 9, [1.1, 1.2, 1.3, 1.1, 1.2, 1.3, 1.1, 1.2, 1.3])
    assert 1.1 < many.low < many.value < many.high < 1.3 and many == metrics.ratio_of([1.0] * 9, [1.1, 1.2, 1.3] * 3)


@for_each(("first", "second"), [
    ({"sync_tier2": "hfa"}, {"sync_tier2": "hfa", "codec_tier2": "fp16"}),  # a combination looks like its first one
    ({"paradigm": "gloo"}, {"paradigm": "mpi"}),  # that one is in older runs
    ({"overlay_tier2": "tree"}, {"overlay_tier2": "netstorm"}),
])  # fmt: skip
def test_runs_of_different_techniques_never_look_alike(first: dict[str, str], second: dict[str, str]) -> None:
    from testbed.plan.model import to_json

    plans = []
    for kinds in (first, second):
        plan = json.loads(to_json(make_plan()))
        plan["technique"] |= {axis: {"kind": kind} for axis, kind in kinds.items()}
        plans.append(plan)
    looks = identity.of_runs(plans)
    assert len({(look.color, look.marker) for look in looks}) == 2
    assert len({look.label for look in looks}) == 2 and not any(look.label.endswith(("1", "2")) for look in looks)
