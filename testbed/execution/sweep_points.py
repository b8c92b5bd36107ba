"""The points of a sweep: one plan each, named by the hash of the plan and of the code that executes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from testbed.execution.code_version import code_version
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


def points_of(scenario: Path, sweep: SweepSettings, on: str | None, allow_code: bool = False) -> list[SweepPoint]:
    """Return all points, seeds changing fastest. Points that come to the same Plan are one run, given more than once.

    Raise ``ScenarioError`` for the first setting that the scenario refuses, before anything runs.
    """
    read = partial(load, scenario, on=on, sweeping=True, allow_code=allow_code)
    versions: dict[str, str] = {}
    seeds = sweep.seeds_from(read().seed)
    return [_point(read, settings, seed, versions) for settings in sweep.settings() for seed in seeds]


def _point(
    read: Callable[[list[str]], Scenario], settings: dict[str, str], seed: int, versions: dict[str, str]
) -> SweepPoint:
    overrides = [*(f"{path}={value}" for path, value in settings.items()), f"seed={seed}"]
    scenario = read(overrides)
    plan = build_plan(scenario)
    if plan.back_end not in versions:
        versions[plan.back_end] = code_version(plan.back_end)
    return SweepPoint(point_id(plan, versions[plan.back_end]), settings, seed, plan, scenario)


def point_id(plan: Plan, code: str) -> str:
    """Return the first 16 hexadecimal digits of the hash of plan and code."""
    return sha256_of({"plan": json.loads(to_json(plan)), "code": code})[:ID_LETTERS]


def index_of(points: list[SweepPoint], scenario: Path, sweep: SweepSettings) -> dict[str, Any]:
    """Return the content of ``sweep.json``: every point in order, with its settings."""
    rows = [{"id": point.id, "settings": dict(point.settings), "seed": point.seed} for point in points]
    return {"schema_version": 1, "scenario": scenario.name, "varied": list(sweep.varied()), "points": rows}
