"""From rows of a sweep to points, cases and the sentences that say which point won, and how sure that is."""

from typing import Any

import pytest

from analysis.sweeps.conclusion import conclusion
from analysis.sweeps.points import Case, cases_of, points_of
from testbed.errors import ScenarioError
from testbed.target import ACCURACY, Target

TARGET = Target(ACCURACY, 0.9)
SECONDS = {"fsa": (40.0, 44.0, 42.0), "hfa": (20.0, 21.9, 21.1), "esync": (24.0, 26.1, 25.4)}


def row(seed: int, time_s: float | None, **more: Any) -> dict[str, Any]:
    same = {"status": "done", "accuracy": 0.9, "fidelity": "ok", "step_time_s": 0.1, "training_s": 50.0}
    return {"seed": seed, "time_to_target_s": time_s, **same, **more}


def cases(times_s: dict[str, tuple[float | None, ...]], **base: str) -> list[Case]:
    rows = [row(seed, time_s, sync=kind) for kind, times in times_s.items() for seed, time_s in enumerate(times, 1)]
    return cases_of(points_of(rows, ["sync"]), base)


def told(times_s: dict[str, tuple[float | None, ...]], target: Target | None = TARGET, **base: str) -> str:
    return " ".join(conclusion(cases(times_s, **base), target))


def test_the_first_sentence_has_winner_interval_and_seeds() -> None:
    assert told(SECONDS) == (
        "HFA reached 90 % accuracy soonest: 2× as fast as FSA (95 % interval 1.98 to 2.02, 3 seeds); "
        "3 seeds decide it. Next is ESync, which takes 1.2× as long (95 % interval 1.18 to 1.21, 3 seeds)."
    )


def test_the_base_may_be_another_and_may_win() -> None:
    assert told(SECONDS, sync="esync").startswith("HFA reached 90 % accuracy soonest: 1.2× as fast as ESync")
    assert told(SECONDS, sync="hfa") == (
        "HFA reached 90 % accuracy soonest: 1.2× as fast as ESync (95 % interval 1.18 to 1.21, 3 seeds); "
        "3 seeds decide it."
    )


def test_what_is_not_resolved_says_how_many_seeds_would_resolve_it() -> None:
    close = {**SECONDS, "esync": (21.0, 21.5, 23.0)}
    assert told(close).startswith(
        "Not resolved: HFA reached 90 % accuracy soonest in the mean, but cannot be told from ESync "
        "(ESync takes 1.04× as long (95 % interval 0.911 to 1.19, 3 seeds)); about 14 more seeds would."
    )
    same = {"hfa": (20.0, 22.0), "esync": (20.0, 22.0)}
    assert told(same) == "HFA and ESync took equally long."
    spread = {"hfa": (20.0, 22.0, 21.0), "esync": (22.0, 20.0, 21.0)}
    assert "no number of seeds would tell them apart" in told(spread)


def test_who_is_ahead_by_less_than_is_shown_took_equally_long() -> None:
    """Simulated steps hardly depend on the seed, so the seeds resolve a microsecond: "1× as fast as FSA"."""
    close = {"hfa": (20.0, 21.0, 22.0), "fsa": (20.0002, 21.0002, 22.0002)}
    assert told(close) == "HFA and FSA took equally long."
    assert told({"hfa": (20.0, 21.0, 22.0), "fsa": (20.01, 21.02, 21.99)}) == "HFA and FSA took equally long."
    assert told({**close, "esync": (24.0, 26.1, 25.4)}) == (
        "HFA and FSA took equally long, and reached 90 % accuracy soonest: "
        "1.2× as fast as ESync (95 % interval 1.09 to 1.31, 3 seeds); 3 seeds decide it."
    )


def test_a_lead_of_less_than_an_evaluation_is_told() -> None:
    """Targets are seen at evaluations alone: seeds that agree do not make a lead surer than these."""
    close = {"hfa": (20.0, 22.0, 21.0), "fsa": (22.0, 24.2, 23.1)}  # FSA takes 1.1 times as long

    def said(evaluations: int) -> str:
        rows = [
            row(seed, time_s, sync=kind, evaluations_to_target=evaluations)
            for kind, times in close.items()
            for seed, time_s in enumerate(times, 1)
        ]
        return " ".join(conclusion(cases_of(points_of(rows, ["sync"])), TARGET))

    assert "The lead over FSA is less than the time between two evaluations" in said(8)
    assert "The lead" not in said(12)  # evaluations are a twelfth of the time apart
    assert "The lead" not in told(close)  # of earlier releases, whose rows do not tell


def test_one_seed_decides_nothing() -> None:
    text = told({kind: times[:1] for kind, times in SECONDS.items()})
    assert text.startswith("HFA reached 90 % accuracy soonest: 2× as fast as FSA; one seed cannot say")
    assert "decide" not in text and "interval" not in text and "--seeds 3" in text
    assert told({"hfa": (20.0,), "esync": (20.0,)}).startswith("HFA and ESync took equally long; one seed cannot say")


def test_of_an_interrupted_sweep_it_says_which_points_have_one_seed() -> None:
    """It decides what the others can, and the command that goes on is the cure."""
    rows = [row(seed, time_s, sync=kind) for kind, times in SECONDS.items() for seed, time_s in enumerate(times, 1)]
    for late, state in (rows[-1], "pending"), (rows[-2], "interrupted"):
        late |= {"status": state, "time_to_target_s": None}
    text = " ".join(conclusion(cases_of(points_of(rows, ["sync"])), TARGET))
    go_on = "the same `testbed sweep` command goes on where it stopped"
    assert text.startswith("HFA reached 90 % accuracy soonest: 2× as fast as FSA (95 % interval 1.98 to 2.02, 3 seeds)")
    assert f"With ESync HFA has one seed in common, which decides nothing: {go_on}." in text
    assert f"2 of 9 runs are not done (1 interrupted and 1 pending) and are left out; {go_on}." in text
    assert "--seeds" not in text
    text = told({"fsa": SECONDS["fsa"], "hfa": SECONDS["hfa"][:1]})
    assert "; one seed of HFA cannot say whether another would change that (run the sweep with --seeds 3" in text


def test_who_misses_the_target_with_a_seed_does_not_win() -> None:
    text = told({**SECONDS, "diloco": (1.0, None, 1.0), "fsa": (None,) * 3})
    assert text.startswith("HFA reached 90 % accuracy soonest: 1.2× as fast as ESync")
    assert (
        "Not reached by every seed of FSA (no seed, 90 % at the end) and DiLoCo (2 of 3 seeds, 90 % at the end)."
        in text
    )
    nobody = told({"fsa": (None, 1.0), "hfa": (None, None)})
    assert nobody.startswith("No point reached 90 % accuracy with all of its seeds")
    assert nobody.endswith("Nearest is FSA (1 of 2 seeds, 90 % at the end).")


def test_without_a_target_steps_are_compared_and_learning_is_not() -> None:
    text = told({"fsa": (None, None), "hfa": (None, None)}, None)
    assert text.startswith("FSA and HFA took equally long.") and "give --target" in text


def test_a_sweep_of_seeds_alone_tells_their_spread() -> None:
    assert told({"fsa": SECONDS["fsa"]}) == (
        "Time to the target: 42 s in the median of 3 seeds (40 to 44 s). There is no other point to compare."
    )


def test_runs_that_are_not_done_count_nowhere_and_doubtful_ones_are_told() -> None:
    rows = [row(seed, time_s, sync=kind) for kind, times in SECONDS.items() for seed, time_s in enumerate(times, 1)]
    rows[0] |= {"status": "failed", "time_to_target_s": None}
    rows[1] |= {"fidelity": "degraded"}
    text = " ".join(conclusion(cases_of(points_of(rows, ["sync"])), TARGET))
    assert "1 of 9 runs are not done (1 failed)" in text and "fidelity of 1 of 8 runs is degraded" in text
    assert "2 seeds decide it" in text, "of FSA, which is compared with, two seeds are left"


CONDITIONS = [
    row(seed, time_s * factor, **{"sync": kind, "links[*].rate": rate, "optimizer.at": at})
    for rate, factor in (("5 Mbit/s", 3), ("1 Gbit/s", 1))
    for kind, at in (("fsa", "global"), ("hfa", "worker"))
    for seed, time_s in enumerate(SECONDS[kind])
]


def test_points_under_other_conditions_are_no_rivals() -> None:
    found = cases_of(points_of(CONDITIONS, ["sync", "links[*].rate", "optimizer.at"]))
    assert [(case.told, case.base.label, [point.label for point in case.points]) for case in found] == [
        ("rate 5 Mbit/s", "FSA", ["FSA", "HFA"]),
        ("rate 1 Gbit/s", "FSA", ["FSA", "HFA"]),
    ]
    assert [text.partition(":")[0] for text in conclusion(found, TARGET)] == ["rate 5 Mbit/s", "rate 1 Gbit/s"]


def test_a_base_says_what_is_compared() -> None:
    points = points_of(CONDITIONS, ["sync", "links[*].rate", "optimizer.at"])
    (fsa, hfa) = cases_of(points, {"topology.links[*].rate": "1 Gbit/s"})
    assert (fsa.told, hfa.told, fsa.base.label) == ("FSA", "HFA", "rate 1 Gbit/s")
    (both,) = cases_of(points, {"links[*].rate": "1 Gbit/s", "sync": "hfa"})
    assert both.base.label == "HFA, rate 1 Gbit/s" and len(both.points) == 4


@pytest.mark.parametrize(
    ("base", "says"),
    [
        ({"codec": "none"}, r"the sweep does not vary codec \(it varies sync, links\[\*\].rate\)"),
        ({"sync": "bsp"}, r"no point has this value \(one of fsa, hfa\)"),
    ],
)
def test_a_base_that_is_no_point_is_refused(base: dict[str, str], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        cases_of(points_of(CONDITIONS, ["sync", "links[*].rate"]), base)


def test_a_base_that_is_two_points_is_refused() -> None:
    rows = [row(1, 2.0, sync=f"{{kind: hfa, k1: {k1}}}") for k1 in (2, 4)]
    points = points_of(rows, ["sync"])
    with pytest.raises(ScenarioError, match="is 2 points: HFA k1=2; HFA k1=4; name one of"):
        cases_of(points, {"sync": "hfa"})
    assert cases_of(points, {"sync": "{kind: hfa, k1: 4}"})[0].base.label == "HFA k1=4"


def test_steps_along_sums_of_gradients_are_told_from_steps_of_one_worker() -> None:
    workers = {"fsa": 6, "hfa": 1, "esync": 1}
    rows = [
        row(seed, time_s, sync=kind, summed_gradients=workers[kind])
        for kind, times in SECONDS.items()
        for seed, time_s in enumerate(times, 1)
    ]
    found = cases_of(points_of(rows, ["sync"]))
    text = " ".join(conclusion(found, TARGET))
    assert (
        "One step is along the sum of several workers' gradients with FSA (6), and along one worker's, or their mean, "
        "with HFA, ESync: at an equal learning rate, steps are up to 6 times as long." in text
    )
    assert "One step is along" not in " ".join(conclusion(found, TARGET, tuned=True))
    alike = [{**each, "summed_gradients": 6} for each in rows]
    assert "One step is along" not in " ".join(conclusion(cases_of(points_of(alike, ["sync"])), TARGET))
