"""``sweep.json``: the points of a sweep in order, each with its settings and its run directory.

<directory>/runs/<id>/              one run, named by its content
<directory>/runs/<point>-seed<n>    a link to the run, named by the settings that vary: ``hfa-seed1``
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from testbed.results.rundir import damaged, read_json

FILE = "sweep.json"


@dataclass(frozen=True, slots=True)
class IndexedPoint:
    """One run of a sweep. ``id`` names its directory; ``settings`` holds the settings of the sweep, by path."""

    id: str
    settings: dict[str, str]
    seed: int


@dataclass(frozen=True, slots=True)
class TunedPoint:
    """The tuned value of the point with these settings.

    at_end   ``low`` or ``high`` if the value lies at that end of the range
    stopped  number of runs of the search that were ended early
    rounds   rounds of all runs of the search together
    """

    settings: dict[str, str]
    value: str
    at_end: str
    stopped: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Tuning:
    """How the setting ``path`` was tuned: the range of its values, the runs for each point, and their seed."""

    path: str
    low: str
    high: str
    runs: int
    seed: int
    points: list[TunedPoint]


@dataclass(frozen=True, slots=True)
class SweepIndex:
    """The content of ``sweep.json``. ``left_out``: techniques that cannot run on the scenario, with the reason."""

    schema_version: int
    scenario: str
    points: list[IndexedPoint]
    left_out: dict[str, str] = field(default_factory=dict)
    tuning: Tuning | None = None


def is_sweep(path: Path) -> bool:
    return (path / FILE).is_file()


def read_index(directory: Path) -> SweepIndex:
    """Return the index of a sweep's directory. Raise ``TestbedError`` if it is damaged."""
    path = directory / FILE
    content = read_json(path)
    try:
        return msgspec.convert(content, SweepIndex)
    except msgspec.ValidationError as error:
        raise damaged(path, str(error)) from error


def folder(directory: Path, name: str) -> Path:
    """Return the place of a run, by its id or by the name of its link."""
    return directory / "runs" / name
