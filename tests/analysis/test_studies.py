"""Studies: every declaration is complete and valid, verdicts are honest, and a user's own study runs end to end."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import islice, pairwise, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pandas as pd
import pytest
from matplotlib.figure import Figure

from analysis import identity
from analysis.load import StoredRun, load_run
from analysis.studies import EXPERIMENTS, PAPERS, STUDIES, VERDICTS, drawing, engine, worlds
from analysis.studies.claims import A_DIFFERENCE, FAIL, PASS, UNRESOLVED, between, exactly, in_order, ordered
from analysis.studies.columns import compute_ratio, final_loss
from analysis.studies.experiments import extrapolation, headline, tls_cost
from analysis.studies.papers import esync, six_way, sparsity, stale
from analysis.studies.study import Panel, Request, Results, Study, StudyRun, StudySweep, against, find, published
from testbed.check.figure import CheckedFigure, smallest, the_declaration_is_complete
from testbed.cli import main as command
from testbed.errors import ScenarioError
from testbed.execution import sweep_points
from testbed.policy.sync import SYNC
from testbed.results import tables
from tests.analysis.test_breakdown import hop, write
from tests.for_each import for_each
from tests.results import fake_run

INFINITY = float("inf")
OWN = """
from analysis.studies.claims import exactly
from analysis.studies.study import Panel, Study, StudySweep

SCENARIO = '''
version: 1
name: own
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]
training: {model: {kind: mlp, hidden: 8}, data: digits, batch: 8, rounds: 2, evaluate_every: 1}
device: {step_time: 10 ms}
'''

def claims(found):
    yield exactly("FP16 halves the bytes", found.ratios("wan_bytes", "none", "fp16")[0], 2, 2, " times")

MY_FIGURE = Study(
    title="Own", source="nowhere", scenario=SCENARIO, claims=claims,
    sweeps=lambda quick: (StudySweep("codecs", {"none": {}, "fp16": {"codec": "fp16"}}),),
    panels=(Panel("Bytes", "wan_bytes / 1e6", kind="bar", y_label="MB"),),
)

def made():
    return MY_FIGURE
"""


def test_a_study_may_compare_techniques_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside it in the working directory: its scenario is a text."""
    code = Path(__file__).parents[1] / "check/examples/sign_sgd.py"
    (tmp_path / "mine.py").write_text(code.read_text())
    monkeypatch.chdir(tmp_path)
    text = OWN.split("'''")[1]
    sweep = StudySweep("codecs", {"none": {}, "mine": {"codec": "./mine.py:SignSgd"}})
    study = Study(title="Own", source="nowhere", scenario=text, sweeps=lambda quick: (sweep,))
    (job,) = engine.jobs(study, Request(tmp_path / "out"))
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


def test_what_is_the_same_for_every_seed_needs_no_interval() -> None:
    assert exactly("", 1.0, 1, 1).verdict == PASS
    assert exactly("", 1.1, 0, 1).verdict == FAIL


def test_orders() -> None:
    apart = {"a": [3.0, 3.1, 3.2], "b": [1.0, 1.1, 1.2]}
    assert ordered("", apart).verdict == PASS
    assert ordered("", dict(reversed(apart.items()))).verdict == FAIL
    assert ordered("", {"a": [3.0, 1.0, 2.0], "b": [2.0, 1.1, 2.2]}).verdict == UNRESOLVED
    assert ordered("", {**apart, "c": []}).verdict == UNRESOLVED
    assert ordered("", {"a": [3.0], "b": [1.0]}).verdict == UNRESOLVED, "one seed has no interval"
    assert ordered("", {"a": [1.0], "b": [3.0]}).verdict == UNRESOLVED
    assert ordered("", {"a": [3.0, 3.1, 3.2], "b": [1.0, 1.1]}).verdict == UNRESOLVED, "the missing seed never arrived"


def test_a_seed_without_a_value_is_not_passed_over() -> None:
    """Seed 2 never reached the target in any of the series: the means are those of seeds 1 and 3."""
    groups = {"a": [3.0, math.nan, 3.1], "b": [1.0, math.nan, 1.1]}
    assert ordered("", groups).verdict == UNRESOLVED
    assert between("", groups["a"], 1).verdict == UNRESOLVED
    frame = pd.DataFrame({"series": "SSP", "bound": list(stale.BOUNDS) * 2, "seed": [1] * 5 + [2] * 5,
                          "time_to_target_s": [9.0, 5.0, 1.0, 5.0, 9.0] * 2})  # fmt: skip
    assert stale._interior(Results(frame, frame)).verdict == PASS
    late = frame.assign(time_to_target_s=frame["time_to_target_s"].where(frame["seed"] == 1))
    found = stale._interior(Results(late, late))
    assert (found.verdict, found.why) == (UNRESOLVED, "not every seed reached the target at every bound")


def test_both_orders_leave_the_same_slack() -> None:
    for below, verdict in ((1.0999, PASS), (1.1001, FAIL)):
        assert ordered("", {"a": [1.0, 1.0], "b": [below, below]}, slack=0.1).verdict == verdict
        assert in_order("", {"a": 1.0, "b": below}, slack=0.1).verdict == verdict


def test_runs_that_are_equal_support_no_difference() -> None:
    """As those of a setting without effect: neither is before, above or worse than the other."""
    assert ordered("", {"a": [1.0, 1.0], "b": [1.0, 1.0]}).verdict == FAIL
    assert in_order("", {"a": 1.0, "b": 1.0}).verdict == FAIL
    assert between("", [0.0, 0.0], A_DIFFERENCE).verdict == FAIL
    names = ("Bi-Sparse 0.01", "random-k 0.01", "no momentum correction 0.01", "dense", "FP16")
    runs = pd.DataFrame([{"sweep": "accuracy", "variant": name, "seed": seed, "back_end": "simulate", "accuracy": 0.9}
                         for name in names for seed in (1, 2)])  # fmt: skip
    verdicts = {found.claim: found.verdict for found in islice(sparsity.claims(Results(runs, runs)), 4)}
    assert [verdict for claim, verdict in verdicts.items() if "worse" in claim] == [FAIL, FAIL]
    assert [verdict for claim, verdict in verdicts.items() if "within" in claim] == [PASS, PASS]
    rows = [{"split": "by_class", "training.split": "by_class", "variant": name, "seed": seed, "at_s": at,
             "at_accuracy": 0.5} for name in ("ASGD", "ESync") for seed in (1, 2) for at in (10.0, 20.0)]  # fmt: skip
    assert esync._crossover(Results(runs, pd.DataFrame(rows))).verdict != PASS, "neither is evaluated before 10 s"


def test_a_seed_that_diverged_is_not_passed_over() -> None:
    """Before any evaluation, so that it has no accuracy."""
    rows = [{"variant": name, "seed": seed, "accuracy": None if (name, seed) == ("DGT", 3) else 0.9}
            for name in ("DGT", "TCP") for seed in (1, 2, 3)]  # fmt: skip
    frame = pd.DataFrame(rows)
    differences = Results(frame, frame).differences("accuracy", "DGT", "TCP")
    assert differences[:2] == [0.0, 0.0] and math.isnan(differences[2])
    assert between("", differences, -0.005, 1).verdict == UNRESOLVED
    name = extrapolation.BEYOND[0].name
    runs = pd.DataFrame({"variant": name, "updates": [100.0, math.nan], "fitted": 100.0, "residual": 0.1})
    told = {found.claim: found.verdict for found in extrapolation.claims(Results(runs, runs))}
    assert next(verdict for claim, verdict in told.items() if name in claim) == UNRESOLVED


def test_a_worker_that_serves_computes_for_itself_alone(tmp_path: Path) -> None:
    """Of 10 s, a step of 2 s; what its server and its codecs do while it waits is not its own."""
    write(
        tmp_path / "events",
        ("a/worker0", "compute", 0, 2, {"work": "step"}), ("a/worker0", "compute", 2, 3, {"work": "encode"}),
        hop("a/worker0", "a/global0", "push", 3, 4), ("a/global0", "compute", 4, 8, {"work": "optimizer"}),
        hop("a/global0", "a/worker0", "value", 8, 9), ("a/worker0", "compute", 11, 14, {"work": "step"}),
        ("a/worker0", "round", 0, 10, {"loss": 1.0}),
    )  # fmt: skip
    run: Any = SimpleNamespace(tables=tables.read(tmp_path))
    assert compute_ratio(StudyRun("", "", {}, 1, run)) == {"a/worker0": pytest.approx(0.2)}


def test_bits_are_those_of_one_seed_and_back_end() -> None:
    _, study = find("data-cache")
    curves = pd.DataFrame({"variant": ["cache, cold", "all in memory"], "round": 1, "duration_s": 1.0})
    runs = pd.DataFrame({"back_end": "simulate", "seed": [1, 1, 2, 2], "parameters_sha256": ["a", "a", "b", "b"]})
    assert study.claims
    unknown = runs.assign(parameters_sha256=None)  # the workers of a run differ
    for frame, verdict in ((runs, PASS), (unknown, FAIL), (runs.assign(parameters_sha256=["a", "a", "b", "c"]), FAIL)):
        found = next(iter(study.claims(Results(frame, curves))))
        assert found.verdict == verdict
    assert found.measured == "at most 2 digests among the 2 runs of a seed"


def test_bytes_of_sparse_gradients_are_counted_by_seed_and_back_end() -> None:
    places = [("b", kind, 0) for kind in ("push", "value")]

    def row(variant: str, back_end: str, seed: int, each: int) -> dict[str, Any]:
        return {"sweep": "bytes", "variant": variant, "back_end": back_end, "seed": seed,
                "by_direction": dict.fromkeys(places, each)}  # fmt: skip

    rows = []
    for back_end, seed, elements in (("simulate", 1, 1000), ("simulate", 2, 2000), ("emulate", 1, 4000)):
        rows.append(row("dense", back_end, seed, 4 * elements))
        rows.append(row("padded 0.1", back_end, seed, elements))
    found = sparsity.derive(pd.DataFrame(rows))
    assert found["moved_bytes"].tolist() == [8000, 2000, 16_000, 4000, 32_000, 8000]
    assert found["predicted_bytes"].tolist() == [8000, 3200, 16_000, 6400, 32_000, 12_800]  # 800 up, three times down


def test_orders_of_what_is_the_same_for_every_seed() -> None:
    assert in_order("", {"a": 3.0, "b": 1.0}).verdict == PASS
    assert in_order("", {"a": 1.0, "b": 3.0}).verdict == FAIL
    assert in_order("", {"a": 1.0, "b": 1.01}, slack=0.02).verdict == PASS


def six_runs(times: dict[tuple[str, str, int], float]) -> Results:
    """Results as of the six-way comparison: (back end, technique, seed) to the length of a round."""
    rows = [
        {"sweep": six_way.ALIKE, "back_end": back_end, "variant": variant, "seed": seed, "round_time_s": time,
         "s_per_1000_samples": 10 * time, "to_target_s": 20 * time, "training_s": 30 * time, "accuracy": 0.9,
         "wan_mb_per_1000_samples": 2.0, "parameters_sha256": f"{variant}{seed}"}
        for (back_end, variant, seed), time in times.items()
    ]  # fmt: skip
    return Results(pd.DataFrame(rows), pd.DataFrame())


def test_the_error_column_is_of_one_seed_at_a_time() -> None:
    both = {("emulate", "FSA", 1): 1.0, ("emulate", "FSA", 2): 2.0, ("simulate", "FSA", 1): 0.9,
            ("simulate", "FSA", 2): 2.2, ("simulate", "FSA", 3): 9.0}  # fmt: skip
    found = six_runs(both | {("emulate", name, 1): 1.0 for name in six_way.VARIANTS if name != "FSA"})
    assert worlds.errors(found, "FSA") == pytest.approx([-0.1, 0.1])
    table = six_way.table(found)
    row = table[(table["algorithm"] == "FSA") & (table["back end"] == "emulated")].iloc[0]
    assert row["error of the round (%)"] == pytest.approx(0.0, abs=1e-9)
    assert row["seeds at the target"] == 2
    assert row["s to 90%"] == pytest.approx(30.0)


def test_pictures_of_a_study_that_was_only_emulated() -> None:
    """Its simulation is what they show where there is one."""
    found = six_runs({("emulate", name, seed): 1.0 + seed for name in six_way.VARIANTS for seed in (1, 2)})
    curves = [{"sweep": six_way.ALIKE, "back_end": "emulate", "variant": name, "seed": 1, "at_round": at, "at_s": at,
               "at_accuracy": 0.1 * at} for name in six_way.VARIANTS for at in range(1, 5)]  # fmt: skip
    axes, others = Figure().subplots(2)
    six_way._accuracy(six_way.ALIKE, axes, replace(found, curves=pd.DataFrame(curves)))
    assert all(len(line.get_xdata()) for line in axes.lines)  # pictures without any data cannot be drawn
    six_way._sooner(six_way.ALIKE, others, found)
    assert [text.get_text() for text in others.texts] == ["1.00"] * len(six_way.VARIANTS)


def test_pictures_with_room_for_one_back_end_mix_no_two() -> None:
    place = {"sweep": headline.SMALL, "rate_mbps": headline.LADDER_MBPS, "variant": headline.BEST, "seed": 1}
    rows = [{**place, "back_end": name, "gain": gain} for name, gain in (("exact", 10.0), ("simulate", 20.0))]
    axes = Figure().subplots()
    headline._ladder(axes, Results(pd.DataFrame(rows), pd.DataFrame()))
    assert [bar.get_width() for bar in axes.patches] == [20.0]


def test_workers_that_differ_have_no_equal_bits() -> None:
    found = six_runs({(world, "FSA", seed): 1.0 for world in ("emulate", "simulate") for seed in (1, 2)})
    assert worlds.same_bits(found, "FSA").verdict == PASS
    torn = found.runs["parameters_sha256"].where((found.runs["back_end"] == "simulate") | (found.runs["seed"] == 1))
    decided = worlds.same_bits(replace(found, runs=found.runs.assign(parameters_sha256=torn)), "FSA")
    assert (decided.verdict, decided.measured) == (FAIL, "1 of 2 seeds")


def test_rankings_that_differ_fail() -> None:
    places = list(six_way.VARIANTS)
    alike = {(world, name, 1): 1.0 + place for world in ("emulate", "simulate") for place, name in enumerate(places)}
    turned = {**alike, **{("simulate", name, 1): 9.0 - place for place, name in enumerate(places)}}
    verdicts = [worlds.ranking(six_runs(times), places, "s_per_1000_samples", "").verdict for times in (alike, turned)]
    assert verdicts == [PASS, FAIL]


def test_any_table_as_latex() -> None:
    text = engine.as_latex(pd.DataFrame({"a_b": ["x%", "y"], "value": [1.23456, math.nan]}))
    assert r"\begin{tabular}{lr}" in text
    assert r"a\_b & value \\" in text
    assert r"x\% & 1.23 \\" in text and r"y & -- \\" in text


def test_a_table_of_two_sweeps_has_a_row_for_each_place_and_no_tuple() -> None:
    """The rates of one sweep and the variants of another: what a run has not is missing, and not left out."""
    rows = pd.DataFrame({"sweep": ["rates", "rates", "sizes"], "variant": [None, None, "big"], "seed": [1, 2, 1],
                         "back_end": "simulate", "rate": [8596.6, 8596.6, None], "time": [1.0, 3.0, 5.0]})  # fmt: skip
    panels = tuple(Panel(name, "time", "rate", where={"sweep": name}) for name in ("rates", "sizes"))
    found = engine.means(Study("", "", "", panels=panels, measure=lambda *_: []), rows).astype(object)
    records = found.where(found.notna(), None).to_dict("records")
    assert records == [{"sweep": "rates", "rates": 2.0, "sizes": None}, {"sweep": "sizes", "rates": None, "sizes": 5.0}]


def test_pairs_are_of_one_seed() -> None:
    frame = pd.DataFrame({"variant": ["a", "a", "b", "b"], "seed": [1, 2, 2, 1], "t": [math.nan, 4.0, 2.0, 9.0]})
    assert Results(frame, frame).pairs("t", "a", "b") == [(4.0, 2.0)]
    two = pd.concat([frame.assign(back_end="simulate"), frame.assign(back_end="emulate", t=1.0)])
    assert Results(two, two).pairs("t", "a", "b") == [(4.0, 2.0), (1.0, 1.0), (1.0, 1.0)]
    with pytest.raises(ValueError, match="several rows"):
        Results(two, two).pairs("t", "simulate", "emulate", by="back_end")


def test_a_base_is_that_of_the_same_place() -> None:
    frame = pd.DataFrame({"variant": ["a", "b", "a", "b"], "rate": [1, 1, 2, 2], "t": [1.0, 2.0, 10.0, 30.0]})
    assert (frame["t"] / against(frame, "t", ["rate"], variant="a")).tolist() == [1.0, 2.0, 1.0, 3.0]
    assert against(frame, "t", ["rate"], variant="c").isna().all()


def test_a_base_is_of_the_same_back_end() -> None:
    frame = pd.DataFrame({"variant": ["a", "b"] * 2, "rate": 1, "back_end": ["simulate"] * 2 + ["emulate"] * 2,
                          "t": [1.0, 2.0, 10.0, 30.0]})  # fmt: skip
    assert (frame["t"] / against(frame, "t", ["rate"], variant="a")).tolist() == [1.0, 2.0, 1.0, 3.0]
    shared = against(frame, "t", ["rate"], variant="a", back_end="emulate")
    assert shared.tolist() == [10.0] * 4


def test_claims_are_decided_for_each_back_end_unless_a_study_compares_them() -> None:
    frame = pd.DataFrame({"variant": ["a", "b"] * 2, "back_end": ["simulate"] * 2 + ["emulate"] * 2, "seed": 1,
                          "t": [1.0, 2.0, 10.0, 30.0]})  # fmt: skip
    study = Study("", "", claims=lambda found: iter([exactly("b / a", found.ratios("t", "b", "a")[0], 2, 2)]))

    def decided(study: Study, runs: pd.DataFrame) -> dict[str, str]:
        return {claim.claim: claim.verdict for claim in engine.claims_of(study, Results(runs, runs), ())}

    assert decided(study, frame) == {"b / a (simulated)": PASS, "b / a (emulated)": FAIL}
    assert list(decided(study, frame.head(2))) == ["b / a"]
    for each in (replace(study, all_back_ends=True), replace(study, on=("simulate", "emulate"))):
        assert list(decided(each, frame)) == ["b / a"]


@for_each(("name", "base", "other"), [("esync", "SSGD", "ESync"), ("hier-k1k2", "K1=30, K2=1", "K1=15, K2=2")])
def test_a_seed_that_never_reached_the_target_counts(name: str, base: str, other: str) -> None:
    """Seed 3 ends without the target: on one side that gives a lower bound, and on the other the claim fails."""
    _, study = find(name)
    assert study.claims and study.sweeps
    told = "SSGD over ESync" if name == "esync" else f"{base} over {other}"
    for late, verdict in ((base, PASS), (other, FAIL)):
        rows = pd.DataFrame([
            {"sweep": "time", "variant": variant, "back_end": "simulate", "seed": seed, "split": "iid",
             "time_to_target_s": None if (variant, seed) == (late, 3) else 50.0 if variant == base else 10.0,
             "training_s": 50.0, "throughput": 1.0, "traffic_mb_per_s": 1.0, "ratio_spread": 0.0}
            for variant in study.sweeps(True)[0].variants for seed in (1, 2, 3)
        ])  # fmt: skip
        claims = study.claims(Results(rows, rows))  # those after it want more than these rows have
        assert next(claim.verdict for claim in claims if told in claim.claim) == verdict, late


def test_published_numbers_have_sources() -> None:
    rows = [row for name in STUDIES for row in published(name)]
    assert rows
    for row in rows:
        assert row.source and row.confidence and row.unit
        assert math.isfinite(row.y)


@for_each("name", [*PAPERS, *EXPERIMENTS, *VERDICTS])
def test_every_declaration_is_complete(name: str) -> None:
    the_declaration_is_complete(CheckedFigure(name))


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


COMPOSED = ("verdicts",)  # of studies that have names of their own


@pytest.mark.sample(2)  # of 41, which take 13 s
@pytest.mark.parametrize("name", [name for name in STUDIES if find(name)[1].sweeps and name not in COMPOSED])
def test_every_point_of_every_study_is_a_valid_scenario(name: str, tmp_path: Path) -> None:
    _, study = find(name)
    back_end = "simulate" if name != "paradigms" else "local"  # the only one with libraries beside it
    jobs = list(engine.jobs(smallest(study), Request(tmp_path, on=(back_end,))))
    assert jobs and all(job.labelled for job in jobs)


@pytest.mark.slow  # 70 s together
@pytest.mark.parametrize("name", [name for name in STUDIES if find(name)[1].sweeps and name not in COMPOSED])
def test_all_points_of_a_study_are_valid_scenarios(name: str, tmp_path: Path) -> None:
    _, study = find(name)
    on = () if name != "paradigms" else ("local",)
    jobs = list(engine.jobs(study, Request(tmp_path, on=on, seeds=1)))
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


# what these read, only real runs have: staleness of updates, enough settings to fit
@pytest.mark.sample(2)  # of 39, which take 29 s
@pytest.mark.parametrize(
    "name",
    [name for name in STUDIES if find(name)[1].sweeps and name not in (*COMPOSED, "staleness", "extrapolation")],
)
def test_columns_claims_and_panels_of_every_study(name: str, finished: dict[str, list[StoredRun]]) -> None:
    _, study = find(name)
    assert study.sweeps
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
    if study.claims:
        assert {claim.verdict for claim in study.claims(results)} <= {PASS, FAIL, UNRESOLVED}
    first = [each for each in found if each.variant == found[0].variant]
    alone = engine.claims_of(study, engine.results_of(name, study, *engine.frames(study, first)[:2]), ["others"])
    assert {claim.verdict for claim in alone} <= {UNRESOLVED}, "a claim on what --only has left out"
    drawn = drawing.draw(study, results)
    assert [axes.get_title(loc="left") or axes.get_title() for axes in drawn.axes][: len(study.panels)] == [
        panel.title for panel in study.panels
    ]
    tabled = any(panel.y and panel.kind != "curve" for panel in study.panels)
    assert engine.means(study, results.runs).empty != tabled


@for_each("name", ["esync", "six-way"])
def test_one_variant_alone_has_a_csv_and_what_needs_no_other(
    name: str, finished: dict[str, list[StoredRun]], tmp_path: Path
) -> None:
    _, study = find(name)
    assert study.sweeps
    sweep = study.sweeps(True)[0]
    label, *others = sweep.variants
    first = {path: values[0] for path, values in sweep.grid.items()}
    rows, curves, _ = engine.frames(study, [StudyRun(sweep.name, label, first, 1, finished["simulate"][0])])
    engine.write_figure(name, study, (rows, curves), tmp_path, others)
    assert label in (tmp_path / f"{name}.csv").read_text()


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
        for batch, times in (("4", (1.0, 2.0)), ("8", (10.0, 30.0))) for variant, t_s in zip("ab", times, strict=True)
    ])  # fmt: skip
    study = Study(
        "", "", sweeps=lambda quick: (StudySweep("s", {"a": {}, "b": {"codec": "fp16"}}, {"training.rounds": ("1",)}),),
        derive=lambda runs: runs.assign(slower=runs["t"] / against(runs, "t", ["sweep"], variant="a")),
        claims=lambda found: iter([exactly("b / a", found.ratios("t", "b", "a")[0], 2, 2)]),
        panels=(Panel("", "slower", kind="bar"),), table=lambda found: found.runs[["variant", "slower"]],
    )  # fmt: skip
    request = Request(tmp_path, settings={"training.batch": ("4", "8"), "training.rounds": ("1", "2")})
    swept = engine.swept_by(study, request)
    assert swept == ["training.batch"], "what the study sweeps itself, it can tell apart"
    results = engine.write_figure("f", study, (frame, None), tmp_path, (), swept)
    assert results.runs["slower"].tolist() == [1.0, 2.0, 1.0, 3.0]
    assert {path.name for path in tmp_path.glob("f-*.csv")} == {"f-1-table.csv", "f-2-table.csv"}
    assert {path.name for path in tmp_path.glob("*.png")} == {"f-1.png", "f-2.png"}
    claims = {each.claim: each.verdict for each in engine.claims_of(study, results, (), swept)}
    assert claims == {"training.batch 4: b / a": PASS, "training.batch 8: b / a": FAIL}


def test_a_setting_that_tells_variants_apart_is_not_replaced(tmp_path: Path) -> None:
    _, study = find("geomx-ladder")
    for values in (("fp16",), ("none", "fp16")):
        request = Request(tmp_path, quick=True, settings={"codec": values})
        with pytest.raises(ScenarioError, match=r"--set codec: '.*' of 'time' would be the same; .* --only"):
            next(engine.jobs(study, request))
    job = next(engine.jobs(study, replace(request, only=("HiPS",))))
    assert {point.settings["codec"] for _, point in job.labelled} == {"none", "fp16"}


def test_a_setting_is_the_same_however_it_is_written(tmp_path: Path) -> None:
    _, study = find("geomx-ladder")
    request = Request(tmp_path, quick=True, settings={"topology.links[*].rate": ("7 Mbit/s", "9 Mbit/s")})
    assert engine.swept_by(study, request) == []
    times, _, learning = engine.jobs(study, request)
    for job in (times, learning):
        assert {point.settings["links[*].rate"] for _, point in job.labelled} == {"7 Mbit/s", "9 Mbit/s"}
        assert not any("topology.links[*].rate" in point.settings for _, point in job.labelled)


def test_a_run_that_diverges_before_an_evaluation_has_no_final_loss() -> None:
    for losses in ([], [0.5, 0.25]):
        scores = pd.DataFrame({"snapshot_t_s": [float(at) for at in range(len(losses))], "loss": losses})
        each: Any = SimpleNamespace(run=SimpleNamespace(tables={"accuracy": scores}))
        assert final_loss(each) == (losses[-1] if losses else None)


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["figure", "esink"]) == 2
    assert "did you mean esync?" in capsys.readouterr().err
    for place in ("./no_such_file.py:X", "no_such_module:X", "analysis.studies.study:Nothing", "math:pi"):
        with pytest.raises(ScenarioError):
            find(place)


def test_the_headline_evaluates_models_that_all_data_centres_have_averaged(tmp_path: Path) -> None:
    _, study = find("headline")
    for job in engine.jobs(study, Request(tmp_path, seeds=1)):
        for label, point in job.labelled:
            plan = point.plan
            sync = plan.technique.sync_tier1
            algorithm = SYNC[sync.kind]
            rounds = algorithm.lan_rounds(algorithm.Options(**sync.options))
            assert plan.training.evaluate_every % rounds == 0, label


def test_an_unknown_label_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    _, study = find("p3-bandwidth")
    with pytest.raises(ScenarioError, match=r"--only: no variant 'typo' in this study \(one of "):
        engine.execute("p3-bandwidth", study, Request(tmp_path / "out", quick=True, only=("typo",)))
    _, measures = find("tls-cost")
    with pytest.raises(ScenarioError, match="--only: this study measures"):
        engine.execute("tls-cost", measures, Request(tmp_path / "out", only=("typo",)))
    assert not (tmp_path / "out").exists()


@for_each(("name", "on", "told"), [
    ("transfers", "local", "on emulate only"), ("allreduce-times", "simulate", "on emulate and local"),
    ("verdict-parallel-optimizer", "local", "no variant of this study"),
])  # fmt: skip
def test_a_back_end_that_a_study_cannot_use_is_refused(name: str, on: str, told: str, tmp_path: Path) -> None:
    """Transfers would be emulated nevertheless, outside of a sandbox."""
    with pytest.raises(ScenarioError, match=told):
        engine.execute(*find(name), Request(tmp_path, on=(on,)))


def test_a_variant_that_cannot_run_on_the_studys_own_back_ends_is_refused_by_their_names(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="--on simulate: no variant"):
        engine.execute(*find("paradigms"), Request(tmp_path, only=("gloo",)))


def test_what_only_leaves_out_is_in_no_verdict(tmp_path: Path) -> None:
    _, study = find("headline")
    request = Request(tmp_path, quick=True, only=("HiPS",))
    missing = engine.left_out(study, request)
    assert missing[0] == "flat PS" and len(missing) == len(headline.STACKS) - 1
    assert engine.left_out(study, replace(request, only=())) == []
    runs = pd.DataFrame({"sweep": headline.SMALL, "variant": "HiPS", "back_end": "simulate", "rate_mbps": 20.0,
                         "seed": 1, "round_s": 0.4, "to_target_s": 9.0, "training_s": 9.0,
                         "learning_rate": [0.003]})  # fmt: skip
    assert study.derive
    claims = engine.claims_of(study, Results(study.derive(runs), runs), missing)
    assert claims and {claim.verdict for claim in claims} == {UNRESOLVED}
    assert claims[0].why.startswith("--only left out flat PS, HiPS + FP16")


def test_a_headline_of_which_a_seed_has_not_reached_the_target_fails() -> None:
    _, study = find("headline")
    runs = pd.DataFrame({"variant": [headline.FLAT] * 2 + [headline.BEST] * 2, "seed": [1, 2, 1, 2],
                         "to_target_s": [900.0, 900.0, 9.0, None]})  # fmt: skip
    runs = runs.assign(
        sweep=headline.SMALL, back_end="simulate", rate_mbps=5.0, round_s=79 * headline.STEP_S, training_s=1000.0
    )
    assert study.derive
    found = headline._times_sooner(study.derive(runs).query("variant == @headline.BEST"), "")
    assert [(claim.verdict, claim.why) for claim in found] == [
        ("fail", f"1 of 2 seeds of {headline.BEST} did not reach the target"),
        ("not resolved", "the nearest measured ratio is 78"),
    ]


def test_a_flat_server_that_has_not_reached_the_target_is_a_lower_bound() -> None:
    """No claim that the factor is too small follows from it."""
    _, study = find("headline")
    runs = pd.DataFrame({"variant": [headline.FLAT] * 2 + [headline.BEST] * 2, "seed": [1, 2, 1, 2],
                         "to_target_s": [None, 100.0, 10.0, 10.0], "training_s": [100.0, 200, 50, 50]})  # fmt: skip
    runs = runs.assign(sweep=headline.SMALL, back_end="simulate", rate_mbps=5.0, round_s=79 * headline.STEP_S)
    assert study.derive
    first, _ = headline._times_sooner(study.derive(runs).query("variant == @headline.BEST"), "")
    assert first.measured.startswith("10 ±") and first.verdict == UNRESOLVED


def test_a_mean_of_some_seeds_says_of_how_many() -> None:
    """A time to a target that one seed never reached: the others' mean, marked as such."""
    axes = Figure().subplots()
    look = identity.look_of("fsa")
    rows = pd.DataFrame({"x": [1, 1, 1, 2, 2, 2], "y": [3.0, 4.0, None, 5.0, 6.0, 7.0], "variant": "a"})
    drawing.line(axes, rows, "x", "y", look)
    assert [text.get_text() for text in axes.texts] == ["2/3 seeds"]
    axes = Figure().subplots()
    drawing.bars(axes, rows.head(3), "y", {"a": look}, Panel(""))
    assert [text.get_text() for text in axes.texts] == ["3.5", "2/3 seeds"]


def test_lines_are_simulated_and_marks_are_not() -> None:
    rows = pd.DataFrame({"back_end": ["simulate", "emulate"] * 2, "variant": "a", "seed": 1, "x": [1, 1, 2, 2],
                         "y": [1.0, 1.1, 2.0, 2.1]})  # fmt: skip
    figure = drawing.draw(Study("", "", panels=(Panel("", "y", "x"),)), Results(rows, rows))
    assert [(line.get_linestyle(), line.get_marker()) for line in figure.axes[0].lines] == [("None", "o"), ("-", "")]


@for_each("kind", ["line", "curve"])
def test_a_series_without_a_simulation_has_a_label(kind: str) -> None:
    rows = pd.DataFrame({"back_end": ["emulate", "exact"] * 2, "variant": "a", "seed": 1, "x": [1, 1, 2, 2],
                         "y": [1.0, 1.1, 2.0, 2.1]})  # fmt: skip
    figure = drawing.draw(Study("", "", panels=(Panel("", "y", "x", kind=kind, legend=True),)), Results(rows, rows))
    axes = figure.axes[0]
    assert axes.get_legend_handles_labels()[1] == ["a"]
    assert [line.get_linestyle() for line in axes.lines] == ["-", "None"]


def test_a_hundred_series_differ() -> None:
    looks = [identity.series(number) for number in range(100)]
    assert len({(look.color, look.marker) for look in looks}) == 100


def test_bars_of_several_back_ends_stand_side_by_side() -> None:
    """A bar never mixes back ends: a mean of simulated and emulated seconds would say nothing."""
    rows = pd.DataFrame({
        "variant": ["a", "a", "b", "b"], "rate": 1, "back_end": ["simulate", "emulate"] * 2, "y": [1.0, 3.0, 2.0, 8.0],
    })  # fmt: skip
    for x in ("", "rate"):
        figure = drawing.draw(Study("", "", panels=(Panel("", "y", x, kind="bar"),)), Results(rows, rows))
        bars = [each for each in figure.axes[0].patches if each.get_height()]
        assert sorted((each.get_height(), bool(each.get_hatch())) for each in bars) == [
            (1.0, False), (2.0, False), (3.0, True), (8.0, True),
        ]  # fmt: skip
        places = sorted((each.get_x(), each.get_x() + each.get_width()) for each in bars)
        assert all(end <= begin + 1e-9 for (_, end), (begin, _) in pairwise(places)), "none covers another"


def test_published_numbers_stand_over_their_bars() -> None:
    rows = pd.DataFrame({"variant": ["a", "b"], "back_end": "simulate", "seed": 1, "y": [1.0, 2.0]})
    (known,) = [each for each in published("netstorm-tta") if each.series == "star, static"]
    results = Results(rows, rows, (replace(known, series="b"),))
    figure = drawing.draw(Study("", "", panels=(Panel("", "y", kind="bar", published="x"),)), results)
    (diamond,) = [line for line in figure.axes[0].lines if line.get_marker() == "D"]
    assert (diamond.get_xdata()[0], diamond.get_ydata()[0]) == (1.0, known.y)


@for_each("shared", [True, False])
def test_published_numbers_without_a_panel_cover_no_legend(shared: bool) -> None:
    rows = pd.DataFrame({"variant": ["a", "b"], "back_end": "simulate", "seed": 1, "x": 1.0, "y": [1.0, 2.0]})
    results = Results(rows, rows, tuple(published("hier-k1k2")))
    figure = drawing.draw(Study("", "", panels=(Panel("", "y", "x", legend=not shared),)), results)
    notes = [text.get_text() for text in figure.texts] + [legend.get_title().get_text() for legend in figure.legends]
    assert [note.partition(",")[0] for note in notes] == ["Published"]
    assert bool(figure.legends) == shared


def test_techniques_from_elsewhere_have_a_look_of_their_own() -> None:
    one, other = identity.look_of("/home/me/my_codec.py:SignSgd"), identity.look_of("pkg.mod:SignSgd")
    assert one == other and one.label == "SignSgd"
    assert identity.look_of("pkg.mod:Warm") != one
    assert identity.technique("hfa+pkg.mod:SignSgd").label == "HFA + SignSgd"


@pytest.mark.slow  # 9 s
def test_what_tls_costs_is_measured(tmp_path: Path) -> None:
    found = tls_cost.measure(Request(tmp_path), {"messages": ("5",), "rounds": ("3",), "mac": ("crc32c",)})
    assert found["tls"].tolist() == ["false", "true"]
    assert (found[["mb_per_s", "cpu_s_per_gb", "round_ms"]] > 0).all(axis=None), found.to_string()


@pytest.mark.slow
def test_a_figure_from_runs_to_verdict(tmp_path: Path) -> None:
    out = tmp_path / "hier"
    assert command.main(["figure", "hier-k1k2", "--quick", "--out", str(out)]) == 0
    verdict = json.loads((out / "verdict.json").read_text())
    assert {each["verdict"] for each in verdict["assertions"]} <= {PASS, FAIL, UNRESOLVED}
    (exact,) = [each for each in verdict["assertions"] if each["claim"].startswith("WAN bytes")]
    assert exact["verdict"] == PASS
    frame = pd.read_csv(out / "hier-k1k2.csv")
    assert set(frame["sweep"]) == {"time", "bytes"}
