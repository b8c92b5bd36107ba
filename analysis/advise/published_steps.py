"""How many steps techniques take to a loss, beside synchronous training, where nothing is trained: by their own
mathematics, or as papers say. ``published_steps.csv`` has these, each with its setting and source."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from analysis.advise.estimate import Known
from analysis.advise.mathematics import is_plain

TABLE = Path(__file__).with_name("published_steps.csv")


@cache
def published() -> dict[str, str]:
    """Return what papers say, by preset."""
    with open(TABLE, newline="", encoding="utf-8") as file:
        return {
            row["preset"]: f"published: {float(row['factor']):g}× the steps, {row['setting']} ({row['source']})"
            for row in csv.DictReader(file)
        }


def steps_told(known: Known) -> str:
    """Return what is known of a candidate's steps to a loss without a training."""
    if is_plain(known.candidate.plan):
        return "1× the steps of synchronous training: its steps are the same"
    return published().get(known.candidate.name.partition(" (")[0], "its steps to a loss are not known")
