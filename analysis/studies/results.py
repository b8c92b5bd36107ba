"""What the runs of a study have come to: a table of runs, a table of curves, and published numbers beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Results:
    """``runs``: one row per run; ``curves``: one row per evaluation, or ``runs`` again without any curve."""

    runs: pd.DataFrame
    curves: pd.DataFrame
    published: tuple[Published, ...] = ()

    def rows(self, **where: Any) -> pd.DataFrame:
        """Return the rows of ``runs`` whose columns have these values."""
        return select(self.runs, where)

    def of(self, column: str, **where: Any) -> list[float]:
        """Return the known values of a column, or of an expression of columns, one per run."""
        rows = self.rows(**where)
        return [float(value) for value in rows.eval(column).dropna()] if len(rows) else []

    def mean(self, column: str, **where: Any) -> float:
        """Return the mean of ``of``. Raise ``LookupError`` without a value."""
        values = self.of(column, **where)
        if not values:
            raise LookupError(f"no run with {where} has a {column}")
        return sum(values) / len(values)

    def ratios(self, column: str, first: Any, second: Any, **where: Any) -> list[float]:
        """Return the value of variant ``first`` divided by that of ``second``, seed by seed; NaN if one has none.

        Name in ``where`` what else varies: ``ValueError`` if a seed has several rows.
        """
        one, other = (self.rows(variant=each, **where).set_index("seed")[column] for each in (first, second))
        if not (one.index.is_unique and other.index.is_unique):
            raise ValueError(f"{column} of {first} and {second}: several rows of one seed; say what else varies")
        return [float(one[seed] / other[seed]) for seed in one.index if seed in other.index]


def select(frame: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows whose columns have these values; a tuple stands for any of its values."""
    for column, value in where.items():
        frame = frame[frame[column].isin(value) if isinstance(value, tuple) else frame[column] == value]
    return frame


def against(frame: pd.DataFrame, column: str, by: Sequence[str], **base: Any) -> pd.Series[float]:
    """Return, for each row, the mean of ``column`` where ``base`` holds and ``by`` is equal; NaN without such rows.

    The rows are of the same back end, unless ``base`` names one.
    """
    if "back_end" in frame and "back_end" not in (*by, *base):
        by = [*by, "back_end"]
    means = select(frame, base).groupby(list(by), dropna=False)[column].mean()
    places = pd.MultiIndex.from_frame(frame[list(by)]) if len(by) > 1 else pd.Index(frame[by[0]])
    return pd.Series(means.reindex(places).to_numpy(), index=frame.index)
