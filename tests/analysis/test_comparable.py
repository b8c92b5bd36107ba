"""Comparisons name what makes runs unlike each other, and say nothing if the runs are alike."""

from __future__ import annotations

from analysis.comparable import coarse, unequal_faults
from testbed.results.summary import missed_faults


def test_faults_that_some_runs_had_ended_before_are_told() -> None:
    late = missed_faults({"faults": {"missed": [{"fault": "down", "targets": "a>b, b>a"}]}})
    assert late == "down a>b, b>a" and missed_faults({"faults": {}}) == ""  # of an earlier release
    rows = [{"label": "FSA", "missed_faults": ""}, {"label": "HFA", "missed_faults": late}]
    assert list(unequal_faults(rows)) == [
        "Runs of HFA had ended before these faults, and others had not: down a>b, b>a."
    ]
    assert list(unequal_faults([{**row, "missed_faults": late} for row in rows])) == []
    assert list(unequal_faults([{"label": "FSA"}, {"label": "HFA"}])) == []


def test_a_target_that_the_first_evaluation_meets_is_an_upper_bound() -> None:
    rows = [
        {"label": "FSA", "evaluations_to_target": 7},
        {"label": "DiLoCo", "evaluations_to_target": 1},
        {"label": "DiLoCo", "evaluations_to_target": 1},
        {"label": "HFA", "evaluations_to_target": None},
    ]
    (told,) = coarse(rows)
    assert "DiLoCo (2)" in told and "FSA" not in told and "upper bounds" in told
    assert list(coarse(rows[:1])) == list(coarse(rows[1:3])) == []  # of one alone, nothing is compared
