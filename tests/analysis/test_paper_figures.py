"""The table of figures from papers: complete, consistent, honest in its verdicts; and one figure made end to end."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from analysis.figures.papers import COMPARISONS, FIGURES, six_way
from analysis.figures.papers.base import FAIL, PASS, UNRESOLVED, between, exactly, in_order, ordered, paired, published
from analysis.figures.papers.produce import as_latex
from testbed.cli import figure as verb
from testbed.cli import main as command
from testbed.run.sweep_points import points_of
from testbed.scenario.sweep import Axis, Sweep

INFINITY = float("inf")
ALL = {**FIGURES, **COMPARISONS}
WRITTEN = [name for name, figure in ALL.items() if figure.studies]


def test_the_command_offers_the_twelve() -> None:
    assert tuple(FIGURES) == verb.FIGURES
    assert len(FIGURES) == 12
    assert tuple(COMPARISONS) == verb.COMPARISONS


@pytest.mark.parametrize(
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
    assert ordered("", {"a": [3.0, 3.1, 3.2], "b": [1.0, 1.1]}).verdict == UNRESOLVED, "the missing seed never arrived"


def test_orders_of_what_is_the_same_for_every_seed() -> None:
    assert in_order("", {"a": 3.0, "b": 1.0}).verdict == PASS
    assert in_order("", {"a": 1.0, "b": 3.0}).verdict == FAIL
    assert in_order("", {"a": 1.0, "b": 1.01}, slack=0.02).verdict == PASS


def six_runs(times: dict[tuple[str, str, int], float]) -> pd.DataFrame:
    """A frame as of the six-way comparison: (world, technique, seed) to the length of a round."""
    rows = [
        {"study": world, "variant": variant, "seed": seed, "round_time_s": time, "s_per_1000_samples": 10 * time,
         "time_to_target_s": None, "accuracy": 0.9, "wan_mb_per_1000_samples": 2.0, "at_s": 1.0, "at_accuracy": 0.5,
         "parameters_sha256": f"{variant}{seed}", "fidelity": "ok"}
        for (world, variant, seed), time in times.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_error_column_is_of_one_seed_at_a_time() -> None:
    both = {("emulated", "FSA", 1): 1.0, ("emulated", "FSA", 2): 2.0, ("simulated", "FSA", 1): 0.9,
            ("simulated", "FSA", 2): 2.2, ("simulated", "FSA", 3): 9.0}  # fmt: skip
    frame = six_runs(both)
    assert six_way.errors(frame, "FSA") == pytest.approx([-0.1, 0.1])
    row = six_way.table(frame).set_index("technique").loc["FSA"]
    assert row["error of the round (%)"] == pytest.approx(0.0, abs=1e-9)
    assert abs(row["largest error (%)"]) == pytest.approx(10.0)
    assert row["seeds"] == 2


def test_rankings_that_differ_fail() -> None:
    places = list(six_way.VARIANTS)
    alike = {(world, name, 1): 1.0 + place for world in six_way.WORLDS for place, name in enumerate(places)}
    turned = {**alike, **{("simulated", name, 1): 9.0 - place for place, name in enumerate(places)}}
    verdicts = [
        next(each.verdict for each in six_way.check(six_runs(times)) if "rank the six" in each.claim)
        for times in (alike, turned)
    ]
    assert verdicts == [PASS, FAIL]


def test_any_table_as_latex() -> None:
    text = as_latex(pd.DataFrame({"a_b": ["x%", "y"], "value": [1.23456, math.nan]}))
    assert r"\begin{tabular}{lr}" in text
    assert r"a\_b & value \\" in text
    assert r"x\% & 1.235 \\" in text and r"y & -- \\" in text


def test_pairs_are_of_one_seed() -> None:
    frame = pd.DataFrame({"variant": ["a", "a", "b", "b"], "seed": [1, 2, 2, 1], "t": [math.nan, 4.0, 2.0, 9.0]})
    assert paired(frame, "t", "a", "b") == [(4.0, 2.0)]


def test_published_numbers_have_sources() -> None:
    rows = [row for name in FIGURES for row in published(name)]
    assert rows
    for row in rows:
        assert row.source and row.confidence and row.unit
        assert math.isfinite(row.y)


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("quick", [True, False])
def test_every_point_of_every_study_is_a_valid_scenario(name: str, quick: bool) -> None:
    """One setting of the grid with every variant: the whole grid would only vary rates and splits."""
    studies = ALL[name].studies
    assert studies is not None
    for study in studies(quick):
        for label, settings in study.variants.items():
            if verb.missing(study.needs.get(label, ())):
                continue
            paths = {**settings, **{path: values[-1] for path, values in study.grid.items()}}
            sweep = Sweep(tuple(Axis((path,), ((value,),)) for path, value in paths.items()))
            (point,) = points_of(verb.SCENARIOS / study.scenario, sweep, "simulate")
            assert point.plan.name == Path(study.scenario).stem


@pytest.mark.parametrize("name", [name for name in FIGURES if name not in WRITTEN])
def test_what_cannot_be_made_is_refused_by_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["figure", name]) == 2
    told = capsys.readouterr().err
    assert f"figure {name}" in told
    for need in verb.missing(FIGURES[name].needs):
        assert need in told


def test_missing_techniques_are_found() -> None:
    assert verb.missing(("sync=fsa", "codec=none", "order=fifo")) == []
    assert verb.missing(("sync=magic",)) == ["sync=magic"]


@pytest.mark.slow
def test_a_figure_from_runs_to_verdict(tmp_path: Path) -> None:
    out = tmp_path / "hier"
    assert command.main(["figure", "hier-k1k2", "--quick", "--out", str(out)]) == 0
    verdict = json.loads((out / "verdict.json").read_text())
    assert {each["verdict"] for each in verdict["assertions"]} <= {PASS, FAIL, UNRESOLVED}
    (exact,) = [each for each in verdict["assertions"] if each["claim"].startswith("WAN bytes")]
    assert exact["verdict"] == PASS
    frame = pd.read_csv(out / "hier-k1k2.csv")
    assert set(frame["study"]) == {"time", "bytes"}
    for form in ("png", "svg", "pdf"):
        assert (out / f"hier-k1k2.{form}").stat().st_size > 5000
