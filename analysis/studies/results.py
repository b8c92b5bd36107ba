"""What the runs of a study have come to: a table of runs, a table of curves, and published numbers beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd


@dataclass(frozen=True, slots=True)
class Published:
    """A number from a paper: drawn as a labelled overlay, never mixed with measured values."""

    series: str
    x: float
    y: float
    unit: str
    source: str
    confidence: str


def published(figure: str) -> list[Published]:
    """Return the numbers of one figure in ``published.csv``, in the order of the file; ``x`` is NaN without a place."""
    table = pd.read_csv(Path(__file__).with_name("published.csv"), keep_default_na=False, na_values={"x": [""]})
    rows = table[table["figure"] == figure].drop(columns="figure")
    return [Published(**{str(name): value for name, value in row.items()}) for row in rows.to_dict("records")]


PLACE = ("sweep", "variant", "back_end", "seed")
"""Columns that, with the settings of the grid, name a run."""


@dataclass(frozen=True, slots=True)
class Results:
    """``runs``: one row per run; ``curves``: one row per evaluation, or ``runs`` again without any curve."""

    runs: pd.DataFrame
    curves: pd.DataFrame
    published: tuple[Published, ...] = ()

    def rows(self, **where: Any) -> pd.DataFrame:
        """Return the rows of ``runs`` whose columns have these values."""
        return select(self.runs, where)

    def made(self, on: str) -> Results:
        """Return what was made on one back end."""
        runs, curves = (select(each, {"back_end": on}) for each in (self.runs, self.curves))
        return Results(runs, curves, self.published)


def select(frame: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows whose columns have these values; a tuple stands for any of its values."""
    for column, value in where.items():
        frame = frame[frame[column].isin(value) if isinstance(value, tuple) else frame[column] == value]
    return frame


def made_on(frame: pd.DataFrame) -> list[str]:
    """Return the back ends on which the runs of a table were made, simulations first; ``simulate`` of other tables."""
    ran = frame["back_end"].unique() if "back_end" in frame else ("simulate",)
    return sorted(map(str, ran), key=lambda each: (each != "simulate", each))


def by_back_end(frame: pd.DataFrame, ran: Sequence[str] = ()) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each back end, or each of ``ran``, and the rows of what was made there; all rows of a table without."""
    for on in ran or made_on(frame):
        yield on, select(frame, {"back_end": on}) if "back_end" in frame else frame


def against(frame: pd.DataFrame, column: str, by: Sequence[str], **base: Any) -> pd.Series[float]:
    """Return, for each row, the mean of ``column`` where ``base`` holds and ``by`` is equal; NaN without such rows.

    The rows are of the same back end, unless ``base`` names one.
    """
    if "back_end" in frame and "back_end" not in (*by, *base):
        by = [*by, "back_end"]
    means = select(frame, base).groupby(list(by), dropna=False)[column].mean()
    places = pd.MultiIndex.from_frame(frame[list(by)]) if len(by) > 1 else pd.Index(frame[by[0]])
    return pd.Series(means.reindex(places).to_numpy(), index=frame.index)
