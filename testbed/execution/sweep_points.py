"""The points of a sweep: one plan each, named by the hash of the plan and of the code that executes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from testbed.plan.build import build_plan
from testbed.plan.model import Plan, to_json
from testbed.results.manifest import version_of
from testbed.results.summary import sha256_of
from testbed.scenario import Scenario
from testbed.scenario.load import load
from testbed.scenario.sweep import SweepSettings

ID_LETTERS = 16
_ROOT = Path(__file__).parents[2]
# What decides a run's results, by back end. Figures and commands are left out: their changes do not invalidate runs.
_ALWAYS = (
    "testbed/axes.py", "testbed/best_effort.py", "testbed/buffers.py", "testbed/codec", "testbed/compute_model.py",
    "testbed/costs.py", "testbed/devices", "testbed/engine", "testbed/environment.py", "testbed/execution",
    "testbed/kvstore", "testbed/messages.py", "testbed/placeholders.py", "testbed/plan", "testbed/policy",
    "testbed/results", "testbed/traffic.py", "testbed/training", "testbed/world.py",
)  # fmt: skip
_BACK_END = {"simulate": ("testbed/simulation",), "local": ("testbed/realtime",),
             "cluster": ("testbed/realtime", "testbed/cluster", "emulation"),
             "emulate": ("testbed/realtime", "emulation"), "exact": ("testbed/realtime", "emulation")}  # fmt: skip
_SOURCES = (".py", ".c", ".cpp")
PACKAGES = ("torch", "numpy", "simpy", "scikit-learn")


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
    code = versions.setdefault(plan.back_end, code_version(plan.back_end))
    return SweepPoint(point_id(plan, code), settings, seed, plan, scenario)


def point_id(plan: Plan, code: str) -> str:
    """Return the first 16 hexadecimal digits of the hash of plan and code."""
    return sha256_of({"plan": json.loads(to_json(plan)), "code": code})[:ID_LETTERS]


def code_version(back_end: str, root: Path = _ROOT) -> str:
    """Return the digest of the sources and packages that determine the results of a run on ``back_end``."""
    digest = hashlib.sha256()
    for place in (*_ALWAYS, *_BACK_END[back_end]):
        path = root / place
        for source in [path] if path.suffix else sorted(p for p in path.rglob("*") if p.suffix in _SOURCES):
            digest.update(f"{source.relative_to(root)}\0".encode() + source.read_bytes() + b"\0")
    digest.update(" ".join(f"{name}={version_of(name)}" for name in PACKAGES).encode())
    return digest.hexdigest()


def index_of(points: list[SweepPoint], scenario: Path, sweep: SweepSettings) -> dict[str, Any]:
    """Return the content of ``sweep.json``: every point in order, with its settings."""
    rows = [{"id": point.id, "settings": dict(point.settings), "seed": point.seed} for point in points]
    return {"schema_version": 1, "scenario": scenario.name, "varied": list(sweep.varied()), "points": rows}
