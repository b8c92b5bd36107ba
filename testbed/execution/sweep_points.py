"""The points of a sweep: one plan each, named by the hash of the plan, its data and the code that executes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from testbed.execution.code_version import code_version
from testbed.execution.sweep_files import code_folders, content_digest, data_files, source_digest
from testbed.plan.build import build_plan
from testbed.plan.model import Plan, to_json
from testbed.results.summary import sha256_of
from testbed.scenario import Scenario
from testbed.scenario.load import load
from testbed.scenario.sweep import SweepSettings

ID_LETTERS = 16


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One run of a sweep. ``settings`` are the overrides as written, without the seed; ``id`` names its directory."""

    id: str
    settings: Mapping[str, str]
    seed: int
    plan: Plan
    scenario: Scenario

    @property
    def resolved(self) -> str:
        """The scenario as YAML, with all defaults. Made only for points that run: it takes longer than their Plan."""
        return self.scenario.to_yaml()


def points_of(
    scenario: Path, sweep: SweepSettings, on: str | None, allow_code: bool = False, folder: Path | None = None
) -> list[SweepPoint]:
    """Return all points, seeds changing fastest. Points that come to the same Plan are one run, given more than once.

    ``allow_code``, ``folder``: as for ``load``. Raise ``ScenarioError`` for the first setting that the scenario
    refuses, before anything runs.
    """
    read = partial(load, scenario, on=on, sweeping=True, allow_code=allow_code, folder=folder)
    dependencies = _dependencies()
    seeds = sweep.seeds_from(read().seed)
    return [_point(read, settings, seed, dependencies) for settings in sweep.settings() for seed in seeds]


def _dependencies() -> Callable[[Plan], dict[str, Any]]:
    """Return what tells what a point depends on beside its Plan. Code, data and folders of code are read once."""
    code = cache(code_version)
    data = cache(content_digest)
    sources = cache(source_digest)

    def of(plan: Plan) -> dict[str, Any]:
        folders = [sources(path) for path in code_folders(plan)]
        own = {"folders": folders} if folders else {}  # else ids would change
        return {"code": code(plan.facilities.sources), "data": [data(path) for path in data_files(plan)], **own}

    return of


def _point(
    read: Callable[[list[str]], Scenario],
    settings: dict[str, str],
    seed: int,
    dependencies: Callable[[Plan], dict[str, Any]],
) -> SweepPoint:
    scenario = read([*(f"{path}={value}" for path, value in settings.items()), f"seed={seed}"])
    plan = build_plan(scenario)
    # the first 16 hexadecimal digits tell a sweep's points apart, and are short enough for a directory's name
    key = sha256_of({"plan": json.loads(to_json(plan)), **dependencies(plan)})[:ID_LETTERS]
    return SweepPoint(key, settings, seed, plan, scenario)


def index_of(points: list[SweepPoint], scenario: Path, sweep: SweepSettings) -> dict[str, Any]:
    """Return the content of ``sweep.json``: every point in order, with its settings."""
    rows = [{"id": point.id, "settings": dict(point.settings), "seed": point.seed} for point in points]
    return {"schema_version": 1, "scenario": scenario.name, "varied": list(sweep.varied()), "points": rows}
