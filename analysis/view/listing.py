"""The runs of a sweep or folder as a table: their settings, their results, and whether they are in progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.identity import technique, technique_of
from testbed.errors import ScenarioError, TestbedError
from testbed.results import rundir, summary
from testbed.results.sweep_index import folder, is_sweep, read_index
from testbed.scenario.sweep_labels import DEFAULT, link_names, varied_of

MEASURES = {  # maps the key of a row to the measure's name and unit
    "accuracy": "accuracy",
    "time_to_target_s": "to target (s)",
    "round_time_s": "per round (s)",
    "rounds": "rounds",
    "wan_mb": "WAN (MB)",
    "training_s": "training (s)",
}


@dataclass(frozen=True)
class Listing:
    """The runs of a sweep or folder. ``settings``: the settings in which they differ, for each run."""

    name: str
    paths: Sequence[Path]
    labels: Sequence[str]
    settings: Sequence[Mapping[str, str]]

    def table(self) -> dict[str, Any]:
        """Return the table for the page. Results are read anew at each call, as runs may be in progress."""
        columns = list(dict.fromkeys(key for each in self.settings for key in each))
        rows = [self._row(place, columns) for place in range(len(self.paths))]
        return {"name": self.name, "settings": columns, "measures": MEASURES, "rows": rows}

    def _row(self, place: int, columns: Sequence[str]) -> dict[str, Any]:
        path = self.paths[place]
        known: dict[str, Any] = {
            "number": place,
            "label": self.labels[place],
            "settings": [self.settings[place].get(column, DEFAULT) for column in columns],
            "state": "pending",
            "can_open": (path / "plan.json").is_file(),
        }
        try:
            known["state"] = rundir.RunDirectory(path).status().state
            result = path / "result.json"
            return known | (_measures(summary.read_result(result)) if result.is_file() else {})
        except TestbedError as error:
            return known | {"state": "damaged", "problem": str(error)}


def _measures(result: Mapping[str, Any]) -> dict[str, Any]:
    known = ("accuracy", "time_to_target_s", "round_time_s", "rounds", "training_s")
    return {**{name: result.get(name) for name in known}, "wan_mb": summary.wan_bytes_of(result) / 1e6}


def listing_of(path: Path) -> Listing:
    """Return the runs of a sweep or folder. Raise ``ScenarioError`` if there are none."""
    if is_sweep(path):
        return _of_sweep(path)
    found = sorted(each for each in path.iterdir() if rundir.is_run(each)) if path.is_dir() else []
    if not found:
        raise ScenarioError(f"{path}: neither a run, nor a sweep, nor a folder of runs; see `testbed run`")
    return Listing(path.absolute().name, found, [each.name for each in found], [_technique(each) for each in found])


def _technique(path: Path) -> dict[str, str]:
    try:
        plan = rundir.read_json(path / "plan.json")
        return {
            "scenario": plan["name"],
            "technique": technique(technique_of(plan)).label,
            "on": plan["back_end"],
            "seed": str(plan["seed"]),
        }
    except (TestbedError, KeyError):
        return {}


def _of_sweep(path: Path) -> Listing:
    points = read_index(path).points
    names = link_names(points)
    varied = varied_of([point.settings for point in points])
    settings = [
        {**{each: point.settings.get(each, DEFAULT) for each in varied}, "seed": str(point.seed)} for point in points
    ]
    paths = [folder(path, point.id) for point in points]
    return Listing(path.absolute().name, paths, names, settings)
