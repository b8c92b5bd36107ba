"""Studies: declarations are complete and valid, verdicts are honest, and a user's own study runs end to end."""

import json
import math
import random
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
from analysis.studies import FIGURES, STUDIES, VERDICTS, diloco_util, drawing, engine, headline, verdict
from analysis.studies.claims import FAIL, INFINITY, PASS, UNRESOLVED, between
from analysis.studies.results import Results, against, published
from analysis.studies.study import RATE, Case, Expected, Panel, Request, Study, StudyRun, find
from analysis.studies.verdict import best_rate, claims_of, factors
from analysis.studies.verdicts import ALL
from testbed.cli import main as command
from testbed.errors import ScenarioError
from testbed.execution import sweep_points
from testbed.testing.figure import smallest, the_declaration_is_complete
from tests.for_each import for_each
from tests.results import fake_run

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
    assert between("", [3.0], 1).measured == "3 (1 seed)", "one value has no interval"
    assert between("", [3.0, 3.0 + 1e-9], 1).measured == "3 ± <0.001 (2 seeds)"


def test_a_base_is_that_of_the_same_place() -> None:
    frame = pd.DataFrame({"variant": ["a", "b", "a", "b"], "rate": [1, 1, 2, 2], "t": [1.0, 2.0, 10.0, 30.0]})
    assert (frame["t"] / against(frame, "t", ["rate"], variant="a")).tolist() == [1.0, 2.0, 1.0, 3.0]
    assert against(frame, "t", ["rate"], variant="c").isna().all()


def test_claims_are_decided_for_each_back_end() -> None:
    frame = pd.DataFrame(
        {
            "sweep": "runs",
            "variant": ["a", "b"] * 2,
            "back_end": ["simulate"] * 2 + ["emulate"] * 2,
            "seed": 1,
            "t": [2.0, 1.0, 30.0, 10.0],
        }
    )
    expected = Expected("a / b", "runs", "t", 2, 2, exact=True)
    study = Study("", "", variants={"a": {}, "b": {}}, expected=(expected,))

    def decided(runs: pd.DataFrame) -> dict[str, str]:
        return {claim.claim: claim.verdict for claim in engine.claims_of(study, Results(runs, runs), ())}

    assert decided(frame) == {"a / b (simulated)": PASS, "a / b (emulated)": FAIL}
    assert list(decided(frame.head(2))) == ["a / b"]


def test_a_rate_outside_those_simulated_is_said_to_be_so() -> None:
    """Data-parallel training reaches 95 % exactly, and already at the lowest rate; DiLoCo never does."""
    rates = (100.0, 200.0)
    runs = pd.DataFrame(
        [
            {"variant": name, "rate_mbps": rate, "utilisation": used, "round_time_s": steps / used}
            for name, steps in diloco_util.STEPS.items()
            for rate, used in zip(rates, (0.95, 0.97) if steps == 1 else (0.5, 0.6), strict=True)
        ]
    )
    *_, last = diloco_util.claims(Results(runs, runs))
    said = "data-parallel and DiLoCo, H = 500: the rate for 95 % lies outside those that were simulated"
    assert (last.verdict, last.why) == (UNRESOLVED, said)


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
        for name in ("throughput", "wan_bytes", "time_to"):
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
        ("data-parallel", "4", 1),
        ("data-parallel", "4", 2),
        ("data-parallel", "8", 1),
        ("data-parallel", "8", 2),
    ]


def test_a_setting_that_the_user_sweeps_is_no_seed(tmp_path: Path) -> None:
    """Its values are apart in claims, bases and pictures: a mean over them, as over seeds, would say nothing."""
    frame = pd.DataFrame(
        [
            {"sweep": "s", "variant": variant, "back_end": "simulate", "training.batch": batch, "seed": 1, "t": t_s}
            for batch, times in (("4", (2.0, 1.0)), ("8", (30.0, 10.0)))
            for variant, t_s in zip("ab", times, strict=True)
        ]
    )
    study = Study(
        "",
        "",
        variants={"a": {}, "b": {"codec": "fp16"}},
        cases={"s": Case({}, {"training.rounds": ("1",)})},
        expected=(Expected("a / b", "s", "t", 2, 2, exact=True),),
        panels=(Panel("", "slower", kind="bar"),),
        derive=lambda runs: runs.assign(slower=against(runs, "t", ["sweep"], variant="a") / runs["t"]),
    )
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
    runs = pd.DataFrame(
        {
            "sweep": headline.SMALL,
            "variant": "HiPS",
            "back_end": "simulate",
            "rate_mbps": 20.0,
            "seed": 1,
            "round_s": 0.4,
            "time_to_target_s": 9.0,
            "training_s": 9.0,
            "accuracy": 0.95,
            "learning_rate": [0.003],
        }
    )
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


def test_a_search_of_learning_rates_has_one_seed_whatever_is_asked_for(tmp_path: Path) -> None:
    """Six variants and three seeds; three learning rates of each with one; two counts of bytes."""
    jobs = engine.jobs(find("low-communication")[1], Request(tmp_path, seeds=3))
    assert [len(job.labelled) for job in jobs] == [6 * 3, 6 * 3, 2 * 3]


FOLDER = Path(__file__).parents[2] / "scenarios" / "verdicts"
TWICE = Expected("twice as soon", "here", "time_to_target_s", low=2)
EXAMPLE = Study(
    "X",
    "nowhere",
    "x.yaml",
    {"twin": {RATE: "2"}, "X": {RATE: "1.5"}},
    {"here": Case()},
    (TWICE,),
    rates=("1", "1.5", "2", "3"),
    technique="X",
)


def runs(times: dict[tuple[str, float, int], float | None]) -> pd.DataFrame:
    """(variant, learning rate, seed) to the time at the target; all runs end at 100 s."""
    return pd.DataFrame(
        [
            {
                "sweep": sweep,
                "back_end": "simulate",
                "variant": variant,
                "learning_rate": rate,
                "seed": seed,
                "time_to_target_s": time,
                "training_s": 100.0,
                "accuracy": 0.9,
            }
            for (variant, rate, seed), time in times.items()
            for sweep in ("here", "here, learning rates")
            if sweep != "here" or rate == float(EXAMPLE.variants[variant][RATE])
        ]
    )


def claims(times: dict[tuple[str, float, int], float | None]) -> list[str]:
    frame = runs(times)
    return [each.verdict for each in claims_of(EXAMPLE, Results(frame, frame))]


BOTH_SIDES: dict[tuple[str, float, int], float | None] = {
    ("twin", 1.0, 1): 50.0,
    ("twin", 1.0, 2): 52.0,
    ("twin", 2.0, 1): 30.0,
    ("twin", 2.0, 2): 31.0,
    ("twin", 3.0, 1): 20.0,
    ("twin", 3.0, 2): None,
    ("X", 1.0, 1): 40.0,
    ("X", 1.0, 2): 40.0,
    ("X", 1.5, 1): 10.0,
    ("X", 1.5, 2): 10.2,
    ("X", 3.0, 1): 11.0,
    ("X", 3.0, 2): 11.0,
}


def test_both_sides_are_judged_at_their_own_best_learning_rate() -> None:
    tried = runs(BOTH_SIDES)
    assert {str(name): best_rate(rows) for name, rows in tried.groupby("variant")} == {"twin": 2.0, "X": 1.5}
    values, lost, censored, _ = factors(tried[tried["sweep"] == "here"], "time_to_target_s", "twin", "X")
    assert values == pytest.approx([3.0, 31 / 10.2]) and not lost and not censored
    assert claims(BOTH_SIDES) == [PASS, PASS, PASS]


def test_a_stated_learning_rate_that_is_not_the_best_fails() -> None:
    better = {**BOTH_SIDES, ("twin", 1.5, 1): 8.0, ("twin", 1.5, 2): 8.0}
    assert claims(better) == [PASS, FAIL, PASS]


def test_a_technique_that_misses_the_target_once_has_lost() -> None:
    """The mean over the seeds that arrived says nothing about the one that did not."""
    times = {place: None if place[0] == "X" and place[2] == 2 else time for place, time in BOTH_SIDES.items()}
    assert claims(times)[0] == FAIL


def test_a_twin_that_misses_the_target_counts_as_if_it_had_reached_it_at_its_end() -> None:
    times = {place: None if place[0] == "twin" else time for place, time in BOTH_SIDES.items()}
    frame = runs(times)
    values, lost, censored, _ = factors(frame[frame["sweep"] == "here"], "time_to_target_s", "twin", "X")
    assert values == pytest.approx([10.0, 100 / 10.2]) and not lost and censored


@for_each(
    ("low", "high", "verdict"),
    [
        (2.0, INFINITY, PASS),
        (50.0, INFINITY, UNRESOLVED),
        (-INFINITY, 20.0, UNRESOLVED),
        (2.0, 20.0, UNRESOLVED),
        (-INFINITY, 5.0, FAIL),
    ],
)
def test_a_lower_bound_shows_that_a_factor_is_large_and_never_that_it_is_small(
    low: float, high: float, verdict: str
) -> None:
    """Both seeds of the twin end at 100 s without the target: it would be reached at least ten times later."""
    frame = runs({place: None if place[0] == "twin" else time for place, time in BOTH_SIDES.items()})
    bounded = replace(EXAMPLE, expected=(replace(TWICE, low=low, high=high),))
    assert next(iter(claims_of(bounded, Results(frame, frame)))).verdict == verdict


@for_each(
    ("arrived", "verdict"),
    [
        ({"X": (), "twin": (1, 2)}, PASS),
        ({"X": (1,), "twin": (1, 2)}, UNRESOLVED),
        ({"X": (), "twin": (1,)}, UNRESOLVED),
    ],
)
def test_what_never_arrives_is_not_sooner(arrived: dict[str, tuple[int, ...]], verdict: str) -> None:
    """Where its twin did arrive; of two that did not, the later one is unknown."""
    late = {place: time if place[2] in arrived[place[0]] else None for place, time in BOTH_SIDES.items()}
    frame = runs(late)
    harm = replace(EXAMPLE, expected=(replace(TWICE, low=-INFINITY, high=1.05),))
    assert next(iter(claims_of(harm, Results(frame, frame)))).verdict == verdict


def test_only_an_unknown_time_to_a_target_is_replaced() -> None:
    frame = runs(BOTH_SIDES).query("sweep == 'here'").assign(round_s=[2.0, math.nan, 1.0, 1.0])
    assert factors(frame, "round_s", "twin", "X") == ([], "", False, ())
    assert factors(frame, "time_to_target_s", "twin", "X").values != []


def test_a_best_learning_rate_at_an_end_of_the_search_is_not_resolved() -> None:
    times = {place: time for place, time in BOTH_SIDES.items() if place[1] != 3.0}
    assert claims(times) == [PASS, UNRESOLVED, UNRESOLVED]


def test_every_scenario_of_the_folder_belongs_to_a_verdict_and_to_the_readme() -> None:
    files = {path.name for path in FOLDER.glob("*.yaml")}
    assert files == {Path(each.scenario).name for each in ALL}
    readme = (FOLDER / "README.md").read_text()
    assert [name for name in files if name not in readme] == []
    assert len({each.technique for each in ALL}) == len(ALL) == len(VERDICTS) - 1


@for_each(("value", "verdict"), [(3.0, PASS), (1.5, FAIL)])
def test_what_a_technique_comes_to_alone(value: float, verdict: str) -> None:
    alone = replace(TWICE, column="round_s", alone=True, exact=True)
    frame = runs(BOTH_SIDES).query("sweep == 'here'").assign(round_s=value)
    (claim,) = claims_of(replace(EXAMPLE, expected=(alone,), rates=()), Results(frame, frame))
    assert (claim.verdict, claim.measured) == (verdict, f"{value:g}")


def decided(name: str, out: Path, seeds: int | None = None) -> dict[str, str]:
    """Claim to verdict, of all runs of a study."""
    found = engine.execute(name, find(name)[1], Request(out, jobs=1, seeds=seeds))
    return {each["claim"]: each["verdict"] for each in found["assertions"]}


@pytest.mark.slow  # 10 s
def test_a_verdict_from_runs_to_table(tmp_path: Path) -> None:
    verdicts = decided("verdict-parallel-optimizer", tmp_path, seeds=2)
    assert set(verdicts.values()) == {PASS}, verdicts
    table = pd.read_csv(tmp_path / "verdict-parallel-optimizer-claims.csv")
    assert table["verdict"].tolist() == [PASS] * len(verdicts)


@pytest.mark.slow  # a minute each; all of them: testbed figure verdicts
@pytest.mark.parametrize("name", random.Random(2).sample([name for name in VERDICTS if name != "verdicts"], 2))
def test_every_technique_wins_where_it_should(name: str, tmp_path: Path) -> None:
    """Where it should gain nothing, five seeds may leave the claim open; it must not fail."""
    verdicts = decided(name, tmp_path)
    _, study = find(name)
    comparison = next(each for each in ALL if each.title == study.title)
    wins = next(iter(comparison.cases))
    assert FAIL not in verdicts.values(), verdicts
    assert {verdict for claim, verdict in verdicts.items() if f", {wins}: " in claim} == {PASS}, verdicts
