"""The table of figures from papers: complete, consistent, honest in its verdicts; and one figure made end to end."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from analysis.figures.papers import FIGURES
from analysis.figures.papers.base import FAIL, PASS, UNRESOLVED, between, exactly, ordered, paired, published
from testbed.cli import figure as verb
from testbed.cli import main as command
from testbed.run.sweep_points import points_of
from testbed.scenario.sweep import Axis, Sweep

INFINITY = float("inf")
WRITTEN = [name for name, figure in FIGURES.items() if figure.studies]


def test_the_command_offers_the_twelve() -> None:
    assert tuple(FIGURES) == verb.FIGURES
    assert len(FIGURES) == 12


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
    studies = FIGURES[name].studies
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
