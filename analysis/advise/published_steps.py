"""How many steps techniques take to a loss, relative to synchronous training, where nothing is trained: by their own
mathematics, or as papers say. ``published_steps.csv`` has these, each with its setting and source."""

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
    """Steps to a loss, as a multiple of those of synchronous training, and who says so."""

    factor: float
    told: str


@cache
def published() -> dict[str, KnownSteps]:
    """Return what papers say, by preset."""
    with open(TABLE, newline="", encoding="utf-8") as file:
        return {row["preset"]: _published(row) for row in csv.DictReader(file)}


def _published(row: Mapping[str, str]) -> KnownSteps:
    factor = float(row["factor"])
    return KnownSteps(factor, f"published: {factor:g}× the steps, {row['setting']} ({row['source']})")


def known_steps(known: Known) -> KnownSteps | None:
    """Return what is known of a candidate's steps to a loss without a training; ``None``: nothing."""
    if is_plain(known.candidate.plan):
        return KnownSteps(1.0, "1× the steps of synchronous training: its steps are the same")
    return published().get(known.candidate.name.partition(" (")[0])
