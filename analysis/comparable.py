"""What makes numbers of runs unlike each other, in sentences. Free of pandas: the end of a sweep tells them, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def unequal_steps(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield that a step of some rows sums up the gradients of more workers than that of others."""
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


def frames_and_payload(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the bytes of a user's programs are, beside those of trainings."""
    programs = [row["label"] for row in rows if "run_time_s" in row]
    if not programs or len(programs) == len(rows):
        return []
    return [f"the WAN bytes of {', '.join(programs)} are those of whole packets; all others are payload alone"]
