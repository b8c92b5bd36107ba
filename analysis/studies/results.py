"""The results of a study: a table of runs, a table of curves, and published numbers."""

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
    """Return the numbers for one figure from ``published.csv``, in the order of the file; an empty ``x`` is NaN."""
    table = pd.read_csv(Path(__file__).with_name("published.csv"), keep_default_na=False, na_values={"x": [""]})
    rows = table[table["figure"] == figure].drop(columns="figure")
    return [Published(**{str(name): value for name, value in row.items()}) for row in rows.to_dict("records")]


PLACE = ("sweep", "variant", "back_end", "seed")
"""Columns that identify a run, together with the settings of the grid."""


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a study.

    runs    one row per run
    curves  one row per evaluation; the same as ``runs`` if the study shows no curves
    """

    runs: pd.DataFrame
    curves: pd.DataFrame
    published: tuple[Published, ...] = ()

    def rows(self, **where: Any) -> pd.DataFrame:
        """Return the rows of ``runs`` whose columns have these values."""
        return select(self.runs, where)

    def made(self, on: str) -> Results:
        """Return the results of the runs on one back end."""
        runs, curves = (select(each, {"back_end": on}) for each in (self.runs, self.curves))
        return Results(runs, curves, self.published)


def select(frame: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows whose columns have these values; a tuple allows any of its values."""
    for column, value in where.items():
        frame = frame[frame[column].isin(value) if isinstance(value, tuple) else frame[column] == value]
    return frame


def made_on(frame: pd.DataFrame) -> list[str]:
    """Return the back ends of the runs in a table, ``simulate`` first; only ``simulate`` if there is no such column."""
    ran = frame["back_end"].unique() if "back_end" in frame else ("simulate",)
    return sorted(map(str, ran), key=lambda each: (each != "simulate", each))


def by_back_end(frame: pd.DataFrame, ran: Sequence[str] = ()) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each back end, or each of ``ran``, with its rows; with all rows if the table has no such column."""
    for on in ran or made_on(frame):
        yield on, select(frame, {"back_end": on}) if "back_end" in frame else frame


def against(frame: pd.DataFrame, column: str, by: Sequence[str], **base: Any) -> pd.Series[float]:
    """Return, for each row, the mean of ``column`` over the reference rows; NaN if there are none.

    by    columns in which the reference rows equal the row; the back end is one of them unless ``base`` names it
    base  values of columns that select the reference rows
    """
    if "back_end" in frame and "back_end" not in (*by, *base):
        by = [*by, "back_end"]
    means = select(frame, base).groupby(list(by), dropna=False)[column].mean()
    places = pd.MultiIndex.from_frame(frame[list(by)]) if len(by) > 1 else pd.Index(frame[by[0]])
    return pd.Series(means.reindex(places).to_numpy(), index=frame.index)
