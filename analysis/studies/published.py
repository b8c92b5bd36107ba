"""Numbers from the literature, by figure: ``published.csv`` names the source of each and how well it is known."""

from __future__ import annotations

import csv
from pathlib import Path

from analysis.studies.study import Published

_TABLE = Path(__file__).with_suffix(".csv")


def published(figure: str) -> list[Published]:
    """All rows of one figure, in the order of the file; ``x`` is NaN where a number has no place on the x axis."""
    with _TABLE.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["figure"] == figure]
    return [Published(row["series"], float(row["x"] or "nan"), float(row["y"]), row["unit"], row["source"],
                      row["confidence"]) for row in rows]  # fmt: skip
