"""Detection of diverged trainings, from losses, accuracies and final values, for any algorithm, model and data set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from testbed.errors import Diverged

if TYPE_CHECKING:
    import pandas as pd

_SHARE = 0.1  # the first and the last tenth of all rounds are the start and the end
_FEW_ROUNDS = 10  # with fewer rounds, neither a rise of the loss nor an accuracy near chance is significant
_LOSS_RISE = 2.0  # a loss has risen if it is more than this many times the first loss
_NO_PROGRESS = 0.98  # nothing is learned if at least this share of the loss remains
_GUESSING = 1.5  # times chance: accuracies that guessing may reach on a few hundred test samples
_FEW_CLASSES = 0.25  # of the way from chance to 1: the limit for two classes, where 1.5 times chance is too high


def of_tellers(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return the rounds of nodes that have reported a loss; in a user's program, often only the first process does."""
    tellers = rounds.loc[rounds["loss"].notna(), "node"].unique()
    return rounds[rounds["node"].isin(tellers)]


def spoilt_values(finals: pd.DataFrame) -> str:
    """Return a message with a cure if a worker ends with values that are not finite, else an empty string."""
    found = finals[(finals["role"] == "worker") & finals["not_finite"].notna()]
    if found.empty:
        return ""
    first = found.iloc[0]
    return _diverged(f"{first['node']} ends with {first['not_finite']:.0f} parameters that are NaN or infinite")


def _diverged(symptom: str) -> str:
    return f"the training diverged: {symptom}; {Diverged.cure}"


def divergence(rounds: pd.DataFrame, accuracy: pd.DataFrame, planned_rounds: int) -> str:
    """Return why the training counts as diverged, and the cure; an empty string if it does not.

    ``rounds`` and ``accuracy`` are the tables of that name (``testbed.results.columns``). A training has diverged if

    * a worker's loss is not finite (``null`` in the table) in each of the last rounds;
    * the median loss of the last tenth of its rounds is more than twice that of the first round, and above that of
      guessing, -ln(chance); or
    * every accuracy after a third of the planned rounds is at most 1.5 times the accuracy of guessing (column
      ``chance``), and at most a quarter of the way from there to 1, while the loss has fallen by 2 % or less since the
      first tenth of the rounds.

    The last two rules need at least 10 rounds. Runs without losses (sizes only) never count as diverged.
    """
    by_round = rounds.groupby("round")["loss"]
    medians = by_round.median()
    if not medians.notna().any():
        return ""
    count = math.ceil(len(medians) * _SHARE)
    missing = by_round.count() < by_round.size()
    if missing.iloc[-count:].all():
        finite = missing.index[~missing]
        first_missing = finite.max() + 1 if len(finite) else missing.index[0]
        return _diverged(f"the loss is not finite from round {first_missing:.0f} on")
    if len(medians) < _FEW_ROUNDS:
        return ""
    first = medians.iloc[0]
    best = medians.iloc[:count].min()
    end = medians.iloc[-count:].median()
    chance = accuracy["chance"].max()  # NaN if nothing is known about the test set
    if end > _LOSS_RISE * first and not end < -math.log(chance):
        return _diverged(f"the loss rose from {first:.3g} to {end:.3g}")
    late = accuracy.loc[accuracy["round"] >= planned_rounds / 3, "accuracy"].max()
    guessed = min(_GUESSING * chance, chance + _FEW_CLASSES * (1 - chance))
    if end >= _NO_PROGRESS * best and late <= guessed:
        found = f"the accuracy stayed at {late:.3g}, where guessing reaches {chance:.3g}"
        return f"the training learned nothing: {found}; try another learning rate, or more rounds"
    return ""
