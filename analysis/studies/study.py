"""The declaration of a study: variants of a scenario, the cases in which they run, claims about them, and panels.

The first variant is the *twin* of the others: the same job without the technique. A study runs nothing itself.
``analysis.studies.engine`` executes it, and writes run directories, one CSV file, one figure and a verdict on every
claim.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.identity import Identity
from analysis.load import StoredRun
from analysis.studies import STUDIES
from analysis.studies.claims import INFINITY, Claim
from analysis.studies.results import Results
from testbed.axes import import_code, installed
from testbed.errors import ScenarioError

Settings = Mapping[str, str]
RATE = "optimizer.learning_rate"
SEEDS = 5
_QUICK_SEEDS = 2
_QUICK_VALUES = 4


@dataclass(frozen=True, slots=True)
class Case:
    """Conditions in which every variant runs.

    settings        added to those of every variant; a variant's own settings take precedence
    varies          maps a setting to its values: every variant runs with every combination
    variants        replace the study's variants in this case
    learning_rates  of each variant, if the case has rates of its own
    scenario        replaces the study's scenario in this case
    seeds           number of seeds; 1 if the results do not depend on the seed, as for bytes and modelled times
    """

    settings: Settings = field(default_factory=dict)
    varies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variants: Mapping[str, Settings] = field(default_factory=dict)
    learning_rates: Settings = field(default_factory=dict)
    scenario: str = ""
    seeds: int = SEEDS


@dataclass(frozen=True, slots=True)
class Expected:
    """A claim: in ``case``, the ratio twin / technique of ``column``, seed by seed, lies in [``low``, ``high``].

    points     compares the difference technique - twin of a share instead, in percentage points
    alone      compares the technique's own value instead
    twin       a variant other than the first of the case
    technique  a variant other than the last of the case
    at         maps a column to the value at which the claim is made, if the case varies settings
    exact      the value is the same for every seed, so that it decides without an interval
    """

    claim: str
    case: str
    column: str
    low: float = -INFINITY
    high: float = INFINITY
    points: bool = False
    alone: bool = False
    twin: str = ""
    technique: str = ""
    at: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False


@dataclass(frozen=True, slots=True)
class StudySweep:
    """Runs of one scenario: every variant with every combination of ``grid`` and every seed.

    variants  maps a label to settings
    grid      maps a setting to its values
    on        back ends on which the sweep can run; empty for all
    searches  whether it searches learning rates: it then uses one seed, however many the user asks for
    """

    name: str
    variants: Mapping[str, Settings]
    grid: Mapping[str, tuple[str, ...]]
    seeds: int
    scenario: str
    on: tuple[str, ...] = ()
    searches: bool = False


@dataclass(frozen=True, slots=True)
class StudyRun:
    """A finished run and its place in the study. ``settings``: its values of the settings that the case varies."""

    sweep: str
    variant: str
    settings: Settings
    seed: int
    run: StoredRun


@dataclass(frozen=True, slots=True)
class Request:
    """The user's options for the execution of a study.

    out       the folder for all files
    quick     run few values and seeds
    on        back ends; empty for the study's own
    seeds     number of seeds; ``None`` for the study's own
    jobs      number of runs at the same time; ``None`` for the default
    settings  maps a setting to its values. With several values, each gets a figure and claims of its own, unless the
              study varies that setting itself
    only      labels of the variants to run; empty for all
    cluster   address of the cluster whose machines make the runs; empty for this machine
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
    """One pair of axes.

    y          a column, or an expression of columns for ``DataFrame.eval``; ``x`` likewise
    kind       ``line``: mean over seeds with its 95 % interval | ``curve``: one line per seed, by default accuracy
               over time | ``bar``: one bar per series, or a group of bars per value of ``x`` | ``points``: markers,
               with ``model`` as a line | ``forest``: every expected factor with its interval and bounds
    where      maps a column to the value that rows must have; a tuple allows any of its values
    series     the column that distinguishes series
    only       the series to draw; empty for all
    log        the logarithmic axes: ``x``, ``y`` or ``xy``
    levels     maps a value of ``y`` to the label of a horizontal line
    published  unit of the published numbers to draw; empty for none
    labels     maps a series, or a value of ``x``, to the text shown for it
    width      relative to the other panels
    legend     whether the panel has a legend of its own
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


@dataclass(frozen=True, slots=True)
class Study:
    """One figure with its claims.

    source      the paper and figure that it reproduces, or its subject
    scenario    a file below ``scenarios/``, an absolute path, or the YAML text itself
    variants    maps the label of a series to its settings; the twin is first
    cases       maps a name to a case; by default one case without conditions
    expected    claims as data
    claims      yields the other claims: those that do not compare two variants
    rates       learning rates to try for every variant, with one seed, in the cases that have learning rates of their
                own, or else in the first case. Claims check that the rates stated by the variants are the best of them
    on          back ends that run it by default
    only_on     back ends that can run it; empty for all
    columns     maps the name of a column to a function of one run
    derive      adds columns that need several rows
    target      the accuracy of ``time_to_target_s``; by default the scenario's own target, or 90 %
    technique   the name of the technique in the texts of claims; empty to leave it out
    looks       maps the label of a series to its look
    rows        number of rows of panels
    parts       studies that this one shows together; their cases replace its own
    """

    title: str
    source: str
    scenario: str = ""
    variants: Mapping[str, Settings] = field(default_factory=dict)
    cases: Mapping[str, Case] = field(default_factory=lambda: {"runs": Case()})
    expected: tuple[Expected, ...] = ()
    claims: Callable[[Results], Iterable[Claim]] | None = None
    rates: tuple[str, ...] = ()
    on: tuple[str, ...] = ("simulate",)
    only_on: tuple[str, ...] = ()
    columns: Mapping[str, Callable[[StudyRun], Any]] = field(default_factory=dict)
    derive: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    target: float | None = None
    technique: str = ""
    panels: tuple[Panel, ...] = ()
    looks: Mapping[str, Identity] = field(default_factory=dict)
    rows: int = 1
    size_in: tuple[float, float] = (9.0, 3.6)
    parts: tuple[Study, ...] = ()

    def sweeps(self, quick: bool = False) -> tuple[StudySweep, ...]:
        """Return the sweeps of every case, and the searches of learning rates. ``quick``: with few values and seeds."""
        if self.parts:
            return tuple(sweep for part in self.parts for sweep in part.sweeps(quick))
        return tuple(sweep for name in self.cases for sweep in self._sweeps_of(name, quick))

    def _sweeps_of(self, name: str, quick: bool) -> Iterator[StudySweep]:
        case = self.cases[name]
        given = self.variants_of(name)
        scenario = case.scenario or self.scenario
        varies = {path: _few(values) if quick else values for path, values in case.varies.items()}
        seeds = min(case.seeds, _QUICK_SEEDS) if quick else case.seeds
        yield StudySweep(name, given, varies, seeds, scenario, self.only_on)
        if name in self.searched:
            middle = {path: values[len(values) // 2 : len(values) // 2 + 1] for path, values in case.varies.items()}
            yield StudySweep(search_of(name), given, {**middle, RATE: self.rates}, 1, scenario, ("simulate",), True)

    def variants_of(self, name: str) -> dict[str, Settings]:
        """Return the variants of a case, with all their settings."""
        case = self.cases[name]
        rates = {label: {RATE: rate} for label, rate in case.learning_rates.items()}
        given = case.variants or self.variants
        return {label: {**case.settings, **each, **rates.get(label, {})} for label, each in given.items()}

    @property
    def searched(self) -> list[str]:
        """The names of the cases in which learning rates are tried."""
        if not self.rates:
            return []
        return [name for name, case in self.cases.items() if case.learning_rates] or [*self.cases][:1]


def search_of(case: str) -> str:
    """Return the name of the sweep in which the learning rates of a case are tried."""
    return f"{case}, learning rates"


def _few(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``_QUICK_VALUES`` values: the first, the last, and evenly spread ones between them."""
    last = len(values) - 1
    if last < _QUICK_VALUES:
        return values
    return tuple(values[round(place * last / (_QUICK_VALUES - 1))] for place in range(_QUICK_VALUES))


def find(name: str) -> tuple[str, Study]:
    """Return the name for a study's files, and the study. Raise ``ScenarioError`` if there is no such study.

    ``name`` is one of ``STUDIES``, an entry point in the group ``testbed.figure``, ``package.module:NAME`` or
    ``FILE.py:NAME``. The object there is a ``Study``, or a class or function that returns one.
    """
    found = import_code(STUDIES.get(name, name), installed("figure").get(name))
    if found is None:
        close = difflib.get_close_matches(name, STUDIES, 1)
        meant = f"did you mean {close[0]}? " if close else ""
        known = ", ".join([*STUDIES, *installed("figure")])
        raise ScenarioError(f"figure {name}: unknown; {meant}It is one of {known}, package.module:NAME or FILE.py:NAME")
    study = found() if callable(found) and not isinstance(found, Study) else found
    if not isinstance(study, Study):
        raise ScenarioError(f"figure {name}: is not an analysis.studies.study.Study")
    return name.rpartition(":")[2], study
