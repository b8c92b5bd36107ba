"""How many steps techniques need to reach a loss, relative to synchronous training, if nothing is trained.

The factor is 1 if the steps are those of synchronous training; other factors are published. ``published_steps.csv`` has
the published ones, each with its setting and source.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.advise.estimate import Known
from analysis.advise.mathematics import is_plain

TABLE = Path(__file__).with_name("published_steps.csv")


@dataclass(frozen=True, slots=True)
class KnownSteps:
    """The number of steps to a loss relative to synchronous training, and a text that says where it comes from."""

    factor: float
    told: str


@cache
def published() -> dict[str, KnownSteps]:
    """Return the published numbers of steps, by preset."""
    with open(TABLE, newline="", encoding="utf-8") as file:
        return {row["preset"]: _published(row) for row in csv.DictReader(file)}


def _published(row: Mapping[str, str]) -> KnownSteps:
    factor = float(row["factor"])
    return KnownSteps(factor, f"published: {factor:g}× the steps, {row['setting']} ({row['source']})")


def known_steps(known: Known) -> KnownSteps | None:
    """Return a candidate's steps to a loss, as known without training it; ``None`` if they are unknown."""
    if is_plain(known.candidate.plan):
        return KnownSteps(1.0, "1× the steps of synchronous training: its steps are the same")
    return published().get(known.candidate.name.partition(" (")[0])
