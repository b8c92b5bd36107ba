"""What a study declares: variants of a scenario, the cases in which they run, what is expected of them, and panels.

The first variant is the *twin* of the others: the same job without the technique. A study runs nothing.
``analysis.studies.engine`` executes it: run directories, one CSV file, one figure, a verdict on every claim.
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

    settings        added to those of every variant, which overrule them
    varies          setting to its values: every variant runs with every combination
    variants        of this case alone, instead of the study's
    learning_rates  of each variant, if the case has its own
    scenario        instead of the study's
    seeds           how many; one where everything is the same for every seed, as bytes and modelled times are
    """

    settings: Settings = field(default_factory=dict)
    varies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variants: Mapping[str, Settings] = field(default_factory=dict)
    learning_rates: Settings = field(default_factory=dict)
    scenario: str = ""
    seeds: int = SEEDS


@dataclass(frozen=True, slots=True)
class Expected:
    """One claim: in ``case``, the twin's ``column`` over the technique's lies in [``low``, ``high``], seed by seed.

    points           instead, the technique's share less the twin's, in points
    alone            instead, the technique's own value
    twin, technique  other variants than the first and the last of the case
    at               column to value, where the case varies settings
    exact            the value is the same for every seed, so that one decides
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
    """Runs of one scenario: every variant (label to its settings) with every combination of ``grid``, by seed.

    on        back ends on which it can run; empty: all
    searches  for learning rates: by one seed, whatever a user asks for
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
    """One finished run and its place in the study. ``settings`` are those that its case varies."""

    sweep: str
    variant: str
    settings: Settings
    seed: int
    run: StoredRun


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asks of a study. ``on``: back ends; empty means the study's own.

    ``settings``: setting to its values; one is fixed, several are swept, each with a figure and claims of its own,
    unless the study varies that setting itself.
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

    ``kind``: ``line`` (mean over seeds with its 95 % interval), ``curve`` (accuracy over time, one line per seed),
    ``bar`` (one bar per series, or a group of bars per value of ``x``), ``points`` (markers, with ``model`` as a line),
    ``forest`` (every expected factor with its interval and bounds).
    ``where``: column to the value that rows must have. ``series``: the column that distinguishes lines. ``levels``:
    value of ``y`` to the label of a horizontal line. ``published``: unit of the published numbers to draw.
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
    variants    label of a series to the settings that make it, the twin first
    cases       name to the conditions; by default one without any
    expected    claims as data; ``claims`` yields those that are no comparison of two variants
    rates       learning rates that are tried for every variant alike, with one seed: in the cases that have learning
                rates of their own, else in the first. Claims ask whether the stated ones are the best of them
    on          back ends, unless the user asks for others; ``only_on``: those that can run it; empty: all
    columns     name to a function of one run
    derive      adds columns that need several rows
    target      the accuracy of ``time_to_target_s``; by default the scenario's own, or 90 %
    technique   what claims are about, if they are to name it
    parts       studies that this one shows together; it has no cases then
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
        """Return the runs of every case, and of the search of learning rates. ``quick``: few values and seeds."""
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
        """The cases in which learning rates are tried."""
        if not self.rates:
            return []
        return [name for name, case in self.cases.items() if case.learning_rates] or [*self.cases][:1]


def search_of(case: str) -> str:
    """Return the name of the sweep in which the learning rates of a case are tried."""
    return f"{case}, learning rates"


def _few(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return both ends, and evenly spread ones between them."""
    last = len(values) - 1
    if last < _QUICK_VALUES:
        return values
    return tuple(values[round(place * last / (_QUICK_VALUES - 1))] for place in range(_QUICK_VALUES))


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
        raise ScenarioError(f"figure {name}: is not an analysis.studies.study.Study")
    return name.rpartition(":")[2], study
