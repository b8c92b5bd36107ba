"""Studies: every declaration is complete and valid, verdicts are honest, and a user's own study runs end to end."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

import pandas as pd
import pytest

from analysis.load import StoredRun, load_run
from analysis.studies import FIGURES, STUDIES, VERDICTS, drawing, engine, headline, verdict
from analysis.studies.claims import FAIL, PASS, UNRESOLVED, between
from analysis.studies.results import Results, against, published
from analysis.studies.study import Case, Expected, Panel, Request, Study, StudyRun, find
from testbed.cli import main as command
from testbed.errors import ScenarioError
from testbed.execution import sweep_points
from testbed.testing.figure import smallest, the_declaration_is_complete
from tests.for_each import for_each
from tests.results import fake_run

INFINITY = float("inf")
SCENARIO = """
version: 1
name: own
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]
training: {model: {kind: mlp, hidden: 8}, data: digits, batch: 8, rounds: 2, evaluate_every: 1}
device: {step_time: 10 ms}
"""


def test_a_study_may_compare_techniques_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside it in the working directory: its scenario is a text."""
    code = Path(__file__).parents[1] / "testing/examples/sign_sgd.py"
    (tmp_path / "mine.py").write_text(code.read_text())
    monkeypatch.chdir(tmp_path)
    study = Study("Own", "nowhere", SCENARIO, {"none": {}, "mine": {"codec": "./mine.py:SignSgd"}})
    (job,) = engine.jobs(study, Request(tmp_path / "out", seeds=1))
    kinds = [point.plan.technique.codec_tier2.kind for _, point in job.labelled]
    assert kinds == ["none", f"{tmp_path / 'mine.py'}:SignSgd"]


@for_each(
    ("values", "verdict"),
    [
        ([2.0, 2.1, 2.2], PASS),
        ([0.1, 0.11, 0.12], FAIL),
        ([0.9, 1.4, 1.3], UNRESOLVED),
        ([5.0], UNRESOLVED),
        ([], UNRESOLVED),
    ],
)
def test_a_mean_is_resolved_only_by_its_whole_interval(values: list[float], verdict: str) -> None:
    assert between("", values, 1, INFINITY).verdict == verdict


def test_a_seed_without_a_value_is_not_passed_over() -> None:
    """It never reached the target, or diverged before any evaluation: the mean would be of the others."""
    assert between("", [3.0, math.nan, 3.1], 1).verdict == UNRESOLVED


def test_a_base_is_that_of_the_same_place() -> None:
    frame = pd.DataFrame({"variant": ["a", "b", "a", "b"], "rate": [1, 1, 2, 2], "t": [1.0, 2.0, 10.0, 30.0]})
    assert (frame["t"] / against(frame, "t", ["rate"], variant="a")).tolist() == [1.0, 2.0, 1.0, 3.0]
    assert against(frame, "t", ["rate"], variant="c").isna().all()


def test_claims_are_decided_for_each_back_end() -> None:
    frame = pd.DataFrame({"sweep": "runs", "variant": ["a", "b"] * 2, "back_end": ["simulate"] * 2 + ["emulate"] * 2,
                          "seed": 1, "t": [2.0, 1.0, 30.0, 10.0]})  # fmt: skip
    expected = Expected("a / b", "runs", "t", 2, 2, exact=True)
    study = Study("", "", variants={"a": {}, "b": {}}, expected=(expected,))

    def decided(runs: pd.DataFrame) -> dict[str, str]:
        return {claim.claim: claim.verdict for claim in engine.claims_of(study, Results(runs, runs), ())}

    assert decided(frame) == {"a / b (simulated)": PASS, "a / b (emulated)": FAIL}
    assert list(decided(frame.head(2))) == ["a / b"]


def test_published_numbers_have_sources() -> None:
    rows = [row for name in STUDIES for row in published(name)]
    assert rows
    for row in rows:
        assert row.source and row.confidence and row.unit
        assert math.isfinite(row.y)


@for_each("name", [*FIGURES, *VERDICTS])
def test_every_declaration_is_complete(name: str) -> None:
    the_declaration_is_complete(find(name)[1])


def each_run_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Studies are shown the same six runs hundreds of times."""
    known: dict[Any, Any] = {}

    def cached(run: StoredRun, *arguments: Any) -> Any:
        key = run.path, *arguments
        if key not in known:
            known[key] = function(run, *arguments)
        return known[key]

    return cached


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_computed_twice() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("throughput", "wan_bytes", "time_to_accuracy"):
            patch.setattr(engine, name, each_run_once(getattr(engine, name)))
        patch.setattr(sweep_points, "code_version", cache(sweep_points.code_version))
        yield


@pytest.mark.sample(2)  # of 27, which take 9 s
@pytest.mark.parametrize("name", [name for name in STUDIES if name != "verdicts"])
def test_every_point_of_every_study_is_a_valid_scenario(name: str, tmp_path: Path) -> None:
    _, study = find(name)
    jobs = list(engine.jobs(smallest(study), Request(tmp_path)))
    assert jobs and all(job.labelled for job in jobs)


@pytest.mark.slow  # 50 s together
@pytest.mark.parametrize("name", [name for name in STUDIES if name != "verdicts"])
def test_all_points_of_a_study_are_valid_scenarios(name: str, tmp_path: Path) -> None:
    _, study = find(name)
    jobs = list(engine.jobs(study, Request(tmp_path, seeds=1)))
    assert jobs and all(job.labelled for job in jobs)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[StoredRun]]:
    """Two runs of a known course by back end, over WANs of different delay, so that values differ."""
    folder = tmp_path_factory.mktemp("runs")
    made: dict[str, list[StoredRun]] = {"simulate": [], "emulate": []}
    with pytest.MonkeyPatch.context() as patch:
        for number, (on, runs) in product(range(2), made.items()):
            patch.setattr(fake_run, "WAN_S", 0.05 + 0.03 * number)
            runs.append(load_run(fake_run.make_run(folder / f"{on}{number}", back_end=on, rounds=6)))
    return made


@pytest.mark.sample(2)  # of 27, which take 20 s
@pytest.mark.parametrize("name", [name for name in STUDIES if name != "verdicts"])
def test_columns_claims_and_panels_of_every_study(name: str, finished: dict[str, list[StoredRun]]) -> None:
    _, study = find(name)
    found = []
    for sweep in study.sweeps(True):
        for label, *values in product(sweep.variants, *sweep.grid.values()):
            settings = dict(zip(sweep.grid, values, strict=True))
            number = crc32(f"{label} {values}".encode()) % 2
            places = product(range(1, min(sweep.seeds, 2) + 1), study.on)
            found += [StudyRun(sweep.name, label, settings, seed, finished[on][number]) for seed, on in places]
    rows, curves, _ = engine.frames(study, found)
    assert len(rows) == len(found)
    results = engine.results_of(name, study, rows, curves)
    assert {claim.verdict for claim in verdict.claims_of(study, results)} <= {PASS, FAIL, UNRESOLVED}
    first = [each for each in found if each.variant == found[0].variant]
    alone = engine.claims_of(study, engine.results_of(name, study, *engine.frames(study, first)[:2]), ["others"])
    assert {claim.verdict for claim in alone} <= {UNRESOLVED}, "a claim on what --only has left out"
    drawn = drawing.draw(study, results)
    assert [axes.get_title(loc="left") or axes.get_title() for axes in drawn.axes][: len(study.panels)] == [
        panel.title for panel in study.panels
    ]
    tabled = any(panel.y and panel.kind != "curve" for panel in study.panels)
    assert engine.means(study, results.runs).empty != tabled


def test_what_the_user_sets_replaces_the_grid_or_is_added(tmp_path: Path) -> None:
    _, study = find("diloco-util")
    settings = {"links[*].rate": ("1 Gbit/s",), "training.batch": ("4", "8")}
    (job,) = engine.jobs(study, Request(tmp_path, settings=settings, only=("data-parallel",), seeds=2))
    assert [(label, dict(point.settings)["training.batch"], point.seed) for label, point in job.labelled] == [
        ("data-parallel", "4", 1), ("data-parallel", "4", 2), ("data-parallel", "8", 1), ("data-parallel", "8", 2),
    ]  # fmt: skip


def test_a_setting_that_the_user_sweeps_is_no_seed(tmp_path: Path) -> None:
    """Its values are apart in claims, bases and pictures: a mean over them, as over seeds, would say nothing."""
    frame = pd.DataFrame([
        {"sweep": "s", "variant": variant, "back_end": "simulate", "training.batch": batch, "seed": 1, "t": t_s}
        for batch, times in (("4", (2.0, 1.0)), ("8", (30.0, 10.0))) for variant, t_s in zip("ab", times, strict=True)
    ])  # fmt: skip
    study = Study(
        "", "", variants={"a": {}, "b": {"codec": "fp16"}}, cases={"s": Case({}, {"training.rounds": ("1",)})},
        expected=(Expected("a / b", "s", "t", 2, 2, exact=True),), panels=(Panel("", "slower", kind="bar"),),
        derive=lambda runs: runs.assign(slower=against(runs, "t", ["sweep"], variant="a") / runs["t"]),
    )  # fmt: skip
    request = Request(tmp_path, settings={"training.batch": ("4", "8"), "training.rounds": ("1", "2")})
    swept = engine.swept_by(study, request)
    assert swept == ["training.batch"], "what the study varies itself, it can tell apart"
    results = engine.write_figure("f", study, (frame, None), tmp_path, (), swept)
    assert results.runs["slower"].tolist() == [1.0, 2.0, 1.0, 3.0]
    assert {path.name for path in tmp_path.glob("*.png")} == {"f-1.png", "f-2.png"}
    claims = {each.claim: each.verdict for each in engine.claims_of(study, results, (), swept)}
    assert claims == {"training.batch 4: a / b": PASS, "training.batch 8: a / b": FAIL}


def test_a_setting_that_tells_variants_apart_is_not_replaced(tmp_path: Path) -> None:
    _, study = find("headline")
    for values in (("fp16",), ("none", "fp16")):
        request = Request(tmp_path, quick=True, settings={"codec": values})
        with pytest.raises(ScenarioError, match=r"--set codec: '.*' of '0.3 MB' would be the same; .* --only"):
            next(engine.jobs(study, request))
    job = next(engine.jobs(study, replace(request, only=("HiPS",))))
    assert {point.settings["codec"] for _, point in job.labelled} == {"none", "fp16"}


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["figure", "esink"]) == 2
    assert "did you mean esync?" in capsys.readouterr().err
    for place in ("./no_such_file.py:X", "no_such_module:X", "analysis.studies.study:Nothing", "math:pi"):
        with pytest.raises(ScenarioError):
            find(place)


def test_an_unknown_label_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    _, study = find("p3-bandwidth")
    with pytest.raises(ScenarioError, match=r"--only: no variant 'typo' in this study \(one of "):
        engine.execute("p3-bandwidth", study, Request(tmp_path / "out", quick=True, only=("typo",)))
    assert not (tmp_path / "out").exists()


def test_what_only_leaves_out_is_in_no_verdict(tmp_path: Path) -> None:
    _, study = find("headline")
    request = Request(tmp_path, quick=True, only=("HiPS",))
    missing = engine.left_out(study, request)
    assert missing[0] == "flat PS" and len(missing) == len(headline.STACKS) - 1
    assert engine.left_out(study, replace(request, only=())) == []
    runs = pd.DataFrame({"sweep": headline.SMALL, "variant": "HiPS", "back_end": "simulate", "rate_mbps": 20.0,
                         "seed": 1, "round_s": 0.4, "time_to_target_s": 9.0, "training_s": 9.0, "accuracy": 0.95,
                         "learning_rate": [0.003]})  # fmt: skip
    assert study.derive
    claims = engine.claims_of(study, Results(study.derive(runs), runs), missing)
    assert claims and {claim.verdict for claim in claims} == {UNRESOLVED}
    assert claims[0].why.startswith("--only left out flat PS, HiPS + FP16")


@pytest.mark.slow
def test_a_figure_from_runs_to_verdict(tmp_path: Path) -> None:
    out = tmp_path / "hier"
    assert command.main(["figure", "hier-k1k2", "--quick", "--out", str(out)]) == 0
    told = json.loads((out / "verdict.json").read_text())
    assert {each["verdict"] for each in told["assertions"]} <= {PASS, FAIL, UNRESOLVED}
    (exact,) = [each for each in told["assertions"] if "WAN bytes" in each["claim"]]
    assert exact["verdict"] == PASS
    frame = pd.read_csv(out / "hier-k1k2.csv")
    assert set(frame["sweep"]) == {"IID data", "split by class", "bytes"}
