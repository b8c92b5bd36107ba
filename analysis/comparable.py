"""Sentences about differences that make runs hard to compare. Imports no pandas, as every sweep prints them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def unequal_steps(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence if steps of some runs sum the gradients of more workers than those of others."""
    gradients = {row["label"]: row["summed_gradients"] for row in rows if row.get("summed_gradients")}
    most = max(gradients.values(), default=1)
    if most == min(gradients.values(), default=1):
        return
    sums = [f"{name} ({number})" for name, number in gradients.items() if number > 1]
    others = [name for name, number in gradients.items() if number == 1]
    means = f", and along one worker's, or their mean, with {', '.join(others)}" if others else ""
    yield (
        f"One step is along the sum of several workers' gradients with {', '.join(sums)}{means}: at an equal learning "
        f"rate, steps are up to {most} times as long. `optimizer.at: worker` takes the mean; `testbed sweep --tune "
        "learning_rate=LOW..HIGH` gives each a rate of its own."
    )


def unequal_faults(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the faults that came after the end of some runs but not of others, whose conditions therefore differ."""
    labels: dict[str, dict[str, None]] = {}
    for row in rows:
        labels.setdefault(row.get("missed_faults", ""), {})[row["label"]] = None
    if len(labels) > 1:
        for faults, names in labels.items():
            if faults:
                yield f"Runs of {', '.join(names)} had ended before these faults, and others had not: {faults}."


def coarse(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield which runs met the target at their first evaluation, so that their times to target are upper bounds."""
    counts = Counter(row["label"] for row in rows if row.get("evaluations_to_target") == 1)
    if counts and len({row["label"] for row in rows}) > 1:
        runs = ", ".join(f"{label} ({number})" for label, number in counts.items())
        yield (
            f"Runs that had reached the target by their first evaluation: {runs}. They may have been there long "
            "before, so their times are upper bounds; a smaller `training.evaluate_every` (in rounds) shows it."
        )


def frames_and_payload(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a note if the WAN bytes of some runs include headers, as those of users' programs do."""
    programs = [row["label"] for row in rows if "run_time_s" in row]
    if not programs or len(programs) == len(rows):
        return []
    return [f"the WAN bytes of {', '.join(programs)} are those of whole packets; all others are payload alone"]
