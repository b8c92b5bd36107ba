"""What counts as diverged, on tables made for it; whole runs are in ``tests/end_to_end``."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from testbed.results.divergence import divergence, of_tellers
from tests.for_each import for_each

NOTHING = pd.DataFrame({"round": [], "accuracy": [], "chance": []})


def rounds(losses: Sequence[float | None], workers: int = 2) -> pd.DataFrame:
    """Every worker has the same loss in a round."""
    rows = [(round_, loss) for round_, loss in enumerate(losses) for _ in range(workers)]
    return pd.DataFrame(rows, columns=["round", "loss"]).astype({"loss": float})


def accuracy(*values: float, chance: float | None = 0.1) -> pd.DataFrame:
    """Evaluations every ten rounds."""
    return pd.DataFrame({"round": [10 * at + 9 for at in range(len(values))], "accuracy": values, "chance": chance})


FALLING = [2.3 * 0.95**round_ for round_ in range(60)]


@for_each(
    ("losses", "evaluations"),
    [
        (FALLING, accuracy(0.5, 0.7, 0.9)),
        (FALLING, accuracy(0.1, 0.1, 0.1)),  # slow to leave chance, but the loss falls
        (FALLING, accuracy(0.5, 0.7, 0.9, chance=None)),
        ([2.3] * 9, accuracy(0.1)),  # too few rounds to tell
        ([2.3 + 0.3 * (-1) ** round_ for round_ in range(60)], accuracy(0.3, 0.35, 0.3)),  # noise
        ([0.2, 0.3, 0.1, 0.25] * 15, accuracy(0.95, 0.96)),  # begins trained
        ([0.69] * 60, accuracy(0.5, 0.6, 0.66, 0.7, 0.72, 0.73, chance=0.5)),  # two classes: 0.75 is no chance
        ([2.3, None, *FALLING], accuracy(0.5, 0.8)),  # one bad round that was left out
        ([None] * 60, NOTHING),  # sizes only
        ([], NOTHING),
    ],
)
def test_trainings_that_work(losses: list[float | None], evaluations: pd.DataFrame) -> None:
    assert divergence(rounds(losses), evaluations, 60) == ""


@for_each(
    ("losses", "evaluations", "why"),
    [
        ([2.3, 2.2, *[None] * 8], NOTHING, "not finite from round 2"),
        ([2.3, None], NOTHING, "not finite from round 1 on"),
        ([1.5, 1.4, *[13.6] * 20], accuracy(0.1), "rose from 1.5 to 13.6"),
        ([0.69] * 60, accuracy(0.5, 0.52, 0.55, 0.54, 0.5, 0.5, chance=0.52), "where guessing reaches 0.52"),
        ([2.3] * 60, accuracy(0.1, 0.11, 0.12, 0.1, 0.1, 0.1), "stayed at 0.12, where guessing reaches 0.1"),
    ],
)
def test_trainings_that_diverge(losses: list[float | None], evaluations: pd.DataFrame, why: str) -> None:
    assert why in divergence(rounds(losses), evaluations, 60)


def test_one_worker_that_is_lost_is_enough() -> None:
    frame = rounds(FALLING)
    frame.loc[frame.index[1::2][30:], "loss"] = None
    assert "not finite from round 30 on" in divergence(frame, accuracy(0.5, 0.7), 60)


def test_of_a_program_those_count_that_tell_a_loss() -> None:
    """Often its first process alone does; the others report samples."""
    told = rounds(FALLING, workers=1).assign(node="a/worker0")
    both = pd.concat([told, told.assign(node="b/worker0", loss=float("nan"))])
    assert "not finite" in divergence(both, NOTHING, 60)
    assert divergence(of_tellers(both), NOTHING, 60) == ""
    assert divergence(of_tellers(both.assign(loss=float("nan"))), NOTHING, 60) == ""
