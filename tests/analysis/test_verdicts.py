"""Verdicts: a technique beside its twin, each at its best learning rate; what does not arrive has lost."""

import math
import random
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analysis.studies import VERDICTS, engine
from analysis.studies.claims import FAIL, INFINITY, PASS, UNRESOLVED
from analysis.studies.results import Results
from analysis.studies.study import RATE, Case, Expected, Request, Study, find
from analysis.studies.verdict import best_rate, claims_of, factors
from analysis.studies.verdicts import ALL
from tests.for_each import for_each

FOLDER = Path(__file__).parents[2] / "scenarios" / "verdicts"
TWICE = Expected("twice as soon", "here", "time_to_target_s", low=2)
EXAMPLE = Study("X", "nowhere", "x.yaml", {"twin": {RATE: "2"}, "X": {RATE: "1.5"}}, {"here": Case()}, (TWICE,),
                rates=("1", "1.5", "2", "3"), technique="X")  # fmt: skip


def runs(times: dict[tuple[str, float, int], float | None]) -> pd.DataFrame:
    """(variant, learning rate, seed) to the time at the target; all runs end at 100 s."""
    return pd.DataFrame([
        {"sweep": sweep, "back_end": "simulate", "variant": variant, "learning_rate": rate, "seed": seed,
         "time_to_target_s": time, "training_s": 100.0, "accuracy": 0.9}
        for (variant, rate, seed), time in times.items()
        for sweep in ("here", "here, learning rates")
        if sweep != "here" or rate == float(EXAMPLE.variants[variant][RATE])
    ])  # fmt: skip


def claims(times: dict[tuple[str, float, int], float | None]) -> list[str]:
    frame = runs(times)
    return [each.verdict for each in claims_of(EXAMPLE, Results(frame, frame))]


BOTH_SIDES: dict[tuple[str, float, int], float | None] = {
    ("twin", 1.0, 1): 50.0, ("twin", 1.0, 2): 52.0, ("twin", 2.0, 1): 30.0, ("twin", 2.0, 2): 31.0,
    ("twin", 3.0, 1): 20.0, ("twin", 3.0, 2): None,
    ("X", 1.0, 1): 40.0, ("X", 1.0, 2): 40.0, ("X", 1.5, 1): 10.0, ("X", 1.5, 2): 10.2,
    ("X", 3.0, 1): 11.0, ("X", 3.0, 2): 11.0,
}  # fmt: skip


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
    [(2.0, INFINITY, PASS), (50.0, INFINITY, UNRESOLVED), (-INFINITY, 20.0, UNRESOLVED), (2.0, 20.0, UNRESOLVED),
     (-INFINITY, 5.0, FAIL)],
)  # fmt: skip
def test_a_lower_bound_shows_that_a_factor_is_large_and_never_that_it_is_small(
    low: float, high: float, verdict: str
) -> None:
    """Both seeds of the twin end at 100 s without the target: it would be reached at least ten times later."""
    frame = runs({place: None if place[0] == "twin" else time for place, time in BOTH_SIDES.items()})
    bounded = replace(EXAMPLE, expected=(replace(TWICE, low=low, high=high),))
    assert next(iter(claims_of(bounded, Results(frame, frame)))).verdict == verdict


@for_each(
    ("arrived", "verdict"),
    [({"X": (), "twin": (1, 2)}, PASS), ({"X": (1,), "twin": (1, 2)}, UNRESOLVED),
     ({"X": (), "twin": (1,)}, UNRESOLVED)],
)  # fmt: skip
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
