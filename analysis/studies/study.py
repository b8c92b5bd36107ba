"""What a study declares: sweeps over a scenario, columns derived from each run, claims, and panels of a figure.

A study runs nothing. ``analysis.studies.engine`` executes it: run directories, one CSV file, one figure, one verdict.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from analysis.identity import Identity
from analysis.load import StoredRun
from analysis.studies import STUDIES
from analysis.studies.claims import Claim
from testbed.axes import import_code, installed
from testbed.errors import ScenarioError

Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StudySweep:
    """Runs of one scenario: every variant with every combination of ``grid``, ``seeds`` times.

    ``variants``: label of a series to the settings that make it; ``{out}`` in a setting stands for the directory of the
    study. ``grid``: setting to its values. ``scenario``: instead of the study's own. ``on``: the back ends on which it
    can run; empty means all.
    """

    name: str
    variants: Mapping[str, Settings]
    grid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seeds: int = 1
    scenario: str = ""
    on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One finished run and its place in the study. ``settings`` are those of the grid."""

    sweep: str
    variant: str
    settings: Settings
    seed: int
    run: StoredRun


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asks of a study. ``on``: back ends; empty means the study's own.

    ``settings``: setting (or, of a study that measures, parameter) to its values; one is fixed, several are swept, each
    with a figure and claims of its own, unless the study sweeps that setting itself.
    ``only``: labels of the variants to run; empty means all.
    ``cluster``: address of the cluster whose machines run them; empty means this machine.
    """

    out: Path
    quick: bool = False
    on: tuple[str, ...] = ()
    seeds: int | None = None
    jobs: int | None = None
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes. ``x`` and ``y`` are columns, or expressions of columns as ``DataFrame.eval`` reads them.

    ``kind``: ``line`` (mean over seeds with its 95 % interval), ``curve`` (``Study.curves``, one line per seed; without
    ``y``, accuracy over time), ``bar`` (one bar per series, or a group of bars per value of ``x``), ``points``
    (markers, with ``model`` as a line).
    ``where``: column to the value that rows must have. ``series``: the column that distinguishes lines. ``levels``:
    value of ``y`` to the label of a horizontal line. ``published``: unit of the published numbers to draw. ``draw``:
    draws more, or, without ``y``, everything.
    """

    title: str
    y: str = ""
    x: str = ""
    kind: str = "line"
    where: Mapping[str, Any] = field(default_factory=dict)
    series: str = "variant"
    only: tuple[str, ...] = ()
    model: str = ""
    x_label: str = ""
    y_label: str = ""
    log: str = ""
    y_range: tuple[float | None, float | None] = (None, None)
    levels: Mapping[float, str] = field(default_factory=dict)
    published: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    width: float = 1.0
    legend: bool = False
    draw: Callable[[Axes, Results], None] | None = None


@dataclass(frozen=True, slots=True)
class Study:
    """One figure with its claims.

    source      the paper and figure that it reproduces, or its subject
    scenario    a file below ``scenarios/``, a pattern that names several there (each is a variant), an absolute path,
                or the YAML text itself
    sweeps      called with ``quick``: what to run, on the back ends ``on``
    columns     name to a function of one run; from a mapping under a name that ends in " of" come several columns
    derive      adds columns that need several rows
    curves      a frame per run (such as ``columns.accuracy``); the CSV then has one line for each of its rows
    target      the accuracy of ``time_to_target_s``
    all_back_ends  ``claims`` gets the runs of all back ends at once, as it compares them or tells them apart. Else,
                where ``on`` has one back end, it is called for each that ran
    measure     instead of sweeps: a function that returns the rows, with the defaults of its ``parameters``
    measures_on  back ends that ``measure`` can; empty: all
    sandboxed   ``measure`` makes emulated networks itself
    """

    title: str
    source: str
    scenario: str = ""
    sweeps: Callable[[bool], Sequence[StudySweep]] | None = None
    on: tuple[str, ...] = ("simulate",)
    columns: Mapping[str, Callable[[StudyRun], Any]] = field(default_factory=dict)
    derive: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    curves: Callable[[StudyRun], pd.DataFrame] | None = None
    target: float = 0.9
    claims: Callable[[Results], Iterable[Claim]] | None = None
    all_back_ends: bool = False
    panels: tuple[Panel, ...] = ()
    looks: Mapping[str, Identity] = field(default_factory=dict)
    rows: int = 1
    size_in: tuple[float, float] = (9.0, 3.6)
    table: Callable[[Results], pd.DataFrame] | None = None
    measure: Callable[[Request, Mapping[str, tuple[str, ...]]], pd.DataFrame] | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    measures_on: tuple[str, ...] = ()
    sandboxed: bool = False


def find(name: str) -> tuple[str, Study]:
    """Return the name of a study's files, and the study.

    ``name`` is one of ``STUDIES``, an entry point in the group ``testbed.figure``, ``package.module:NAME`` or
    ``FILE.py:NAME``. The object there is a ``Study``, or a class or function that returns one. Raise ``ScenarioError``.
    """
    found = import_code(STUDIES.get(name, name), installed("figure").get(name))
    if found is None:
        close = difflib.get_close_matches(name, STUDIES, 1)
        meant = f"did you mean {close[0]}? " if close else ""
        known = ", ".join([*STUDIES, *installed("figure")])
        raise ScenarioError(f"figure {name}: unknown; {meant}It is one of {known}, package.module:NAME or FILE.py:NAME")
    study = found() if callable(found) and not isinstance(found, Study) else found
    if not isinstance(study, Study):
        raise ScenarioError(f"figure {name}: is no analysis.studies.study.Study")
    return name.rpartition(":")[2], study


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
    """``runs``: one row per run; ``curves``: the rows of ``Study.curves``, or ``runs`` again without any."""

    runs: pd.DataFrame
    curves: pd.DataFrame
    published: tuple[Published, ...] = ()

    def rows(self, **where: Any) -> pd.DataFrame:
        """Return the rows of ``runs`` whose columns have these values."""
        return select(self.runs, where)

    def of(self, column: str, **where: Any) -> list[float]:
        """Return the known values of a column, or of an expression of columns, one per run."""
        return [value for value in self.every(column, **where) if not math.isnan(value)]

    def every(self, column: str, **where: Any) -> list[float]:
        """Return what ``of`` does, with NaN for runs that have no value."""
        rows = self.rows(**where)
        return [float(value) for value in rows.eval(column).astype(float)] if len(rows) else []

    def mean(self, column: str, **where: Any) -> float:
        """Return the mean of ``of``. Raise ``LookupError`` without a value."""
        values = self.of(column, **where)
        if not values:
            raise LookupError(f"no run with {where} has a {column}")
        return sum(values) / len(values)

    def pairs(self, column: str, first: Any, second: Any, by: str = "variant", **where: Any) -> list[tuple[Any, Any]]:
        """Return the values of two variants (or values of ``by``), seed by seed; seeds that lack either are left out.

        Pairs are of the same back end. Name in ``where`` what else varies: ``ValueError`` if a seed has several rows.
        """
        return [pair for pair in self._of_both(column, first, second, by, **where) if pd.notna([*pair]).all()]

    def ratios(self, column: str, first: Any, second: Any, by: str = "variant", **where: Any) -> list[float]:
        """Return ``first`` divided by ``second``, seed by seed; NaN for a seed of which a run has no value."""
        both = self._of_both(column, first, second, by, **where)
        return [a / b if pd.notna([a, b]).all() else math.nan for a, b in both]

    def differences(self, column: str, first: Any, second: Any, by: str = "variant", **where: Any) -> list[float]:
        """Return ``first`` minus ``second``, seed by seed; NaN for a seed of which a run has no value."""
        both = self._of_both(column, first, second, by, **where)
        return [a - b if pd.notna([a, b]).all() else math.nan for a, b in both]

    def _of_both(self, column: str, first: Any, second: Any, by: str, **where: Any) -> list[tuple[Any, Any]]:
        own = [each for each in ("back_end", "seed") if each in self.runs and each != by]
        one, other = (self.rows(**{by: each}, **where).set_index(own)[column] for each in (first, second))
        if not (one.index.is_unique and other.index.is_unique):
            raise ValueError(f"{column} of {first} and {second}: several rows of one seed; say what else varies")
        return [(one[seed], other[seed]) for seed in one.index if seed in other.index]


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
