"""Reads a sweep's directory: its points and the runs of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.compare import row_of
from analysis.load import StoredRun, load_run
from analysis.sweeps.conclusion import conclusion, left_out, tuning_told
from analysis.sweeps.points import Case, Point, cases_of, points_of
from testbed.errors import ScenarioError
from testbed.results import rundir
from testbed.results.sweep_index import IndexedPoint, Tuning, folder, is_sweep, read_index
from testbed.scenario.sweep_labels import link_names, varied_of
from testbed.target import Target, target_in


@dataclass(frozen=True)
class StoredSweep:
    """A sweep on disk, finished or not.

    indexed   its runs, in order
    runs      the runs that have a result, by their position in ``indexed``
    left_out  techniques that could not run on its scenario, with the reason
    tuning    the results of tuning; ``None`` without
    """

    path: Path
    indexed: Sequence[IndexedPoint]
    runs: Mapping[int, StoredRun]
    left_out: Mapping[str, str]
    tuning: Tuning | None

    @property
    def name(self) -> str:
        return self.path.absolute().name


@dataclass(frozen=True)
class SweepComparison:
    """The points of a sweep compared with their bases.

    rows      one mapping per run
    runs      the runs that have a result, by ``row["run"]``
    target    the target of the compared times; ``None`` for none
    common    settings that are equal for all points
    left_out  as in ``StoredSweep``; ``tuning`` likewise
    """

    name: str
    rows: Sequence[Mapping[str, Any]]
    runs: Mapping[str, StoredRun]
    cases: Sequence[Case]
    target: Target | None
    common: Mapping[str, str]
    left_out: Mapping[str, str]
    tuning: Tuning | None

    @property
    def conclusion(self) -> list[str]:
        """The sentences about the sweep, the winner first; see ``analysis.sweeps.conclusion``."""
        tuned = tuning_told(self.tuning) if self.tuning else []
        return [*conclusion(self.cases, self.target, bool(tuned)), *tuned, *left_out(self.left_out)]

    def runs_of(self, point: Point) -> list[StoredRun]:
        """Return the completed runs of a point, in the order of seeds."""
        return [self.runs[row["run"]] for row in point.completed]


def load_sweep(path: Path) -> StoredSweep:
    """Open a sweep's directory. Raise ``ScenarioError`` if it is not one, ``TestbedError`` if a file is damaged."""
    if not is_sweep(path):
        raise ScenarioError(f"{path}: is not the directory of a sweep (it has no sweep.json); see `testbed sweep`")
    index = read_index(path)
    indexed = index.points
    places = {}
    for number, (point, link) in enumerate(zip(indexed, link_names(indexed), strict=True)):
        by_name = folder(path, link)
        is_ours = by_name.is_symlink() and str(by_name.readlink()) == point.id
        place = by_name if is_ours else folder(path, point.id)
        if (place / "result.json").is_file():
            places[number] = load_run(place)
    return StoredSweep(path, indexed, places, index.left_out, index.tuning)


def compare_sweep(
    sweep: StoredSweep, target: Target | None = None, base: Mapping[str, str] | None = None
) -> SweepComparison:
    """Compare the points of a sweep with their base.

    target  by default that of the first run's scenario
    base    settings of the base; by default the first point is the base

    Raise ``ScenarioError`` if no run has a result, or no point has these settings.
    """
    if not sweep.runs:
        raise ScenarioError(f"{sweep.path}: no run of this sweep has a result yet; start the sweep again to go on")
    if target is None:
        target = target_in(next(iter(sweep.runs.values())).plan["training"])
    names = link_names(sweep.indexed)
    rows = [_row(sweep, number, name, target) for number, name in enumerate(names)]
    varied = varied_of([point.settings for point in sweep.indexed])
    runs = {names[number]: run for number, run in sweep.runs.items()}
    common = {path: value for path, value in sweep.indexed[0].settings.items() if path not in varied}
    cases = cases_of(points_of(rows, varied), base)
    return SweepComparison(sweep.name, rows, runs, cases, target, common, sweep.left_out, sweep.tuning)


def _row(sweep: StoredSweep, number: int, name: str, target: Target | None) -> dict[str, Any]:
    """Return the row of one run: settings and measures; of a run without a completed round, settings and status."""
    point = sweep.indexed[number]
    run = sweep.runs.get(number)
    known = {"run": name, "directory": point.id, **point.settings, "seed": point.seed}
    if run is None or (run.program is None and run.tables["rounds"].empty):
        state = run.status.state if run else rundir.RunDirectory(folder(sweep.path, point.id)).status().state
        return known | {"status": state}
    return known | row_of(run, target)


def runs_of(paths: Iterable[Path]) -> list[Path]:
    """Return the run directories; a sweep is replaced by those of its runs that have a result."""
    found: list[Path] = []
    for path in paths:
        found += [run.path for run in load_sweep(path).runs.values()] if is_sweep(path) else [path]
    return found
