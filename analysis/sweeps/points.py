"""The points of a sweep, each with its runs by seed; the cases that they form; and the base of each case.

Settings of the network, the devices and the faults are *conditions*, not choices, so points under different conditions
are not compared with each other. Each combination of conditions is a case with its own base. If the user names a base
by settings (``sync=fsa``), the points are compared by these settings, and all other varied settings form the cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis import identity
from analysis.confidence import Ratio, paired
from testbed.errors import ScenarioError
from testbed.results import COMPLETED
from testbed.scenario.load import completed
from testbed.scenario.sweep_labels import DEFAULT, Word, kind_of, telling, words_of

CONDITIONS = ("topology", "device", "faults")
"""Sections of a scenario that are conditions."""

Row = Mapping[str, Any]
"""One run: its settings by path, ``seed``, ``status``, and measures. Unknown values are ``None``."""


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of settings.

    words     the words that distinguish it from the other points
    settings  its values of the varied settings
    rows      its runs
    """

    words: tuple[Word, ...]
    settings: Mapping[str, str]
    rows: tuple[Row, ...]

    @property
    def label(self) -> str:
        return ", ".join(map(_in_words, self.words)) or "all runs"

    @property
    def completed(self) -> list[Row]:
        return [row for row in self.rows if row["status"] in COMPLETED]

    def by_seed(self, measure: str) -> dict[int, float | None]:
        """Return the measure of each completed run, by seed."""
        return {row["seed"]: row.get(measure) for row in self.completed}

    def values(self, measure: str) -> list[float]:
        """Return the known values of a measure, in the order of seeds."""
        return [value for value in self.by_seed(measure).values() if value is not None]

    def ratio(self, base: Point, measure: str) -> Ratio | None:
        """Return the ratio of this point's measure to the base's over their common seeds; see ``paired``."""
        return paired(base.by_seed(measure), self.by_seed(measure))


@dataclass(frozen=True, slots=True)
class Case:
    """Points that are compared with each other.

    told    the conditions as text; empty if this is the only case
    points  the points, including the base
    base    the point that all are compared with
    """

    told: str
    points: tuple[Point, ...]
    base: Point


def points_of(rows: Iterable[Row], varied: Sequence[str]) -> list[Point]:
    """Return the points of a sweep's rows, in order. ``varied``: the settings with more than one value."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(path, DEFAULT) for path in varied), []).append(row)
    settings = [dict(zip(varied, values, strict=True)) for values in groups]
    words = words_of(telling(settings), settings)
    return [Point(told, each, tuple(group)) for told, each, group in zip(words, settings, groups.values(), strict=True)]


def cases_of(points: Sequence[Point], base: Mapping[str, str] | None = None) -> list[Case]:
    """Return the cases that the points form, each with its base: the point with the settings ``base``, or the first.

    Raise ``ScenarioError`` unless ``base`` names exactly one point of each case.
    """
    paths = telling([point.settings for point in points])
    asked = {completed(path): value for path, value in (base or {}).items()}
    _check(asked, points)
    compared = [path for path in paths if completed(path) in asked]
    compared = compared or [path for path in paths if not _is_condition(path)]
    apart = [path for path in paths if path not in compared] if compared else []
    groups: dict[tuple[str, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple(point.settings[path] for path in apart), []).append(point)
    return [_case(group, set(apart), paths, asked) for group in groups.values()]


def _case(group: Sequence[Point], apart: set[str], paths: Sequence[str], asked: Mapping[str, str]) -> Case:
    """Return one case; the words of its points leave out the settings that define the case."""
    told = ", ".join(_in_words(word) for path, word in zip(paths, group[0].words, strict=True) if path in apart)
    named = [
        Point(
            tuple(word for path, word in zip(paths, point.words, strict=True) if path not in apart),
            point.settings,
            point.rows,
        )
        for point in group
    ]
    bases = [point for point in named if _has(point, asked)]
    if asked and len(bases) != 1:
        where = f" where {told}" if told else ""
        labels = "; ".join(point.label for point in bases)
        found = f"is {len(bases)} points{where}: {labels}" if bases else f"is no point{where}"
        raise ScenarioError(f"--base {_text(asked)}: {found}; name one of {'; '.join(point.label for point in named)}")
    return Case(told, tuple(named), bases[0] if asked else named[0])


def _check(asked: Mapping[str, str], points: Sequence[Point]) -> None:
    """Raise ``ScenarioError`` if ``asked`` has a setting that the sweep does not vary, or a value that no point has."""
    values: dict[str, dict[str, None]] = {}
    for point in points:
        for path, value in point.settings.items():
            values.setdefault(completed(path), {})[value] = None
    for path, value in asked.items():
        if path not in values:
            varied = ", ".join(points[0].settings) if points and points[0].settings else "nothing but seeds"
            raise ScenarioError(f"--base {path}={value}: the sweep does not vary {path} (it varies {varied})")
        if not any(_is(each, value) for each in values[path]):
            raise ScenarioError(f"--base {path}={value}: no point has this value (one of {', '.join(values[path])})")


def _has(point: Point, asked: Mapping[str, str]) -> bool:
    own = {completed(path): value for path, value in point.settings.items()}
    return all(_is(own[path], value) for path, value in asked.items())


def _is(value: str, asked: str) -> bool:
    """Return whether ``value`` equals ``asked``, or is of the kind ``asked``."""
    return value.strip() == asked.strip() or kind_of(value) == asked.strip()


def _is_condition(path: str) -> bool:
    return completed(path).partition(".")[0].partition("[")[0] in CONDITIONS


def _text(settings: Mapping[str, str]) -> str:
    return " --base ".join(f"{path}={value}" for path, value in settings.items())


def _in_words(word: Word) -> str:
    """Return a word for figures and tables, with the usual name of a technique."""
    known = identity.TECHNIQUES.get(word.technique)
    if known is None or word.technique == "none":
        return str(word)
    return f"{word.of} {word.text.replace(word.technique, known.label, 1)}".strip()
