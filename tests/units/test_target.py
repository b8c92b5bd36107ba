"""Targets: what users write, which scores meet them, and how they read."""

from __future__ import annotations

import math

import numpy as np
import pytest

from testbed.target import ACCURACY, LOSS, Target, learning_of, score_text, target_in, target_of_row
from tests.for_each import for_each


@for_each(
    ("text", "target"),
    [
        ("0.95", Target(ACCURACY, 0.95)),
        ("95 %", Target(ACCURACY, 0.95)),
        ("accuracy=95 %", Target(ACCURACY, 0.95)),
        ("loss=2.5", Target(LOSS, 2.5)),
        (" loss = 2.5 ", Target(LOSS, 2.5)),
    ],
)
def test_what_users_write(text: str, target: Target) -> None:
    assert Target.parsed(text) == target


@for_each(
    ("text", "told"),
    [
        ("losses=2", "not a measure of learning; write accuracy=0.95 or loss=2.5"),
        ("loss=low", "not a number; write loss=2.5"),
        ("loss=-1", "not a loss above 0"),
        ("loss=nan", "not a loss above 0"),
        ("loss=inf", "not a loss above 0"),
        ("1.5", "not an accuracy between 0 and 100 %"),
        ("0", "not an accuracy between 0 and 100 %"),
        ("high", "not an accuracy; write"),
    ],
)
def test_what_cannot_be_a_target(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Target.parsed(text)


def test_an_accuracy_is_met_from_below_and_a_loss_from_above() -> None:
    accuracy = Target(ACCURACY, 0.9)
    loss = Target(LOSS, 2.5)
    assert [accuracy.is_met(score) for score in (0.89, 0.9, 0.91)] == [False, True, True]
    assert [loss.is_met(score) for score in (2.51, 2.5, 2.49)] == [False, True, True]
    assert loss.is_met(np.array([3.0, 2.0, math.nan])).tolist() == [False, True, False]
    assert (accuracy.best([0.1, 0.8]), loss.best([3.0, 2.0]), loss.best([])) == (0.8, 2.0, None)
    assert (accuracy.worst([0.1, 0.8]), loss.worst([3.0, 2.0])) == (0.1, 3.0)
    assert (accuracy.missing(0.8), loss.missing(2.75), loss.missing(1.0)) == (pytest.approx(0.1), 0.25, 0.0)


def test_how_targets_and_scores_read() -> None:
    """A score that misses the target never looks as if it met it."""
    accuracy = Target(ACCURACY, 0.975)
    loss = Target(LOSS, 2.5)
    assert (accuracy.name, accuracy.told, accuracy.missed) == ("97.5 %", "97.5 % accuracy", "below")
    assert (loss.name, loss.told, loss.missed) == ("loss 2.5", "a loss of 2.5", "above")
    assert (accuracy.shown(0.974999), loss.shown(2.50003), loss.shown(2.4)) == ("97.4999 %", "2.50003", "2.4")
    assert (loss.shown(None), score_text(LOSS, math.nan), score_text(ACCURACY, 0.5)) == ("–", "–", "50 %")


def test_a_plan_and_a_row_give_their_target_back() -> None:
    assert target_in({"target_accuracy": 0.9}) == Target(ACCURACY, 0.9)  # of an earlier release
    assert target_in({"target_accuracy": None, "target_loss": 2.5}) == Target(LOSS, 2.5)
    assert target_in({"target_accuracy": None, "target_loss": None}) is None
    assert target_of_row({"target": 2.5, "target_measure": LOSS}) == Target(LOSS, 2.5)
    assert target_of_row({"target": None}) is None
    assert (learning_of(None), learning_of(Target(LOSS, 1.0))) == (ACCURACY, LOSS)
    assert Target(LOSS, 2.5).settings == ("training.target_accuracy=null", "training.target_loss=2.5")
