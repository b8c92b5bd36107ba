"""The points of a sweep: one plan each, named by the hash of the plan, its data and the code that executes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from testbed.axes import names_code
from testbed.errors import ScenarioError
from testbed.execution.code_version import code_version
from testbed.execution.sweep_files import code_folders, content_digest, data_files, source_digest
from testbed.plan.build import build_plan
from testbed.plan.identity import identity_of
from testbed.plan.model import Plan, to_json
from testbed.results.summary import sha256_of
from testbed.results.sweep_index import Tuning
from testbed.scenario import Scenario
from testbed.scenario.load import load
from testbed.scenario.presets import KEY as TECHNIQUE
from testbed.scenario.sweep import SweepSettings, with_techniques

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
    """Return all points, seeds changing fastest. Points with equal Plans appear several times, and are one run.

    ``allow_code``, ``folder``: as for ``load``. Raise ``ScenarioError`` for the first setting that the scenario
    refuses, before anything runs.
    """
    return list(_points(partial(load, scenario, on=on, sweeping=True, allow_code=allow_code, folder=folder), sweep))


@dataclass(frozen=True, slots=True)
class TechniquePoints:
    """The points of a sweep over techniques.

    left_out  by technique: why it cannot run on this scenario, or that it is the same as another technique there
    """

    sweep: SweepSettings
    points: list[SweepPoint]
    left_out: Mapping[str, str]


def points_of_techniques(
    names: Sequence[str],
    scenario: Path,
    sweep: SweepSettings,
    on: str | None,
    allow_code: bool = False,
    folder: Path | None = None,
) -> TechniquePoints:
    """Return the points of ``sweep`` for each technique that can run with all of its settings, without duplicates.

    Raise ``ScenarioError`` if no technique can run, or a technique of the user cannot.
    """
    read = partial(load, scenario, on=on, sweeping=True, allow_code=allow_code, folder=folder)
    dependencies = _dependencies()
    read()  # raises for errors of the scenario itself, which are not those of a technique
    points: list[SweepPoint] = []
    left_out = {}
    found: dict[str, str] = {}  # names of techniques by the identities of their Plans on this scenario
    for name in names:
        try:
            own = list(_points(read, with_techniques(sweep, [name]), dependencies))
        except ScenarioError as error:
            reason = error.problems[0].removeprefix(f"--set {TECHNIQUE}={name}: ")
            if names_code(name):  # it was written for this scenario
                raise ScenarioError(f"--techniques: {name}: {reason}") from error
            left_out[name] = reason
            continue
        same = found.setdefault("\n".join(identity_of(point.plan) for point in own), name)
        if same == name:
            points += own
        else:
            left_out[name] = f"is the same as {same} on this scenario"
    if not points:
        raise ScenarioError([f"{name}: {reason}" for name, reason in left_out.items()])
    return TechniquePoints(with_techniques(sweep, [name for name in names if name not in left_out]), points, left_out)


Read = Callable[[list[str]], Scenario]
Dependencies = Callable[[Plan], dict[str, Any]]


def _points(read: Read, sweep: SweepSettings, dependencies: Dependencies | None = None) -> Iterator[SweepPoint]:
    dependencies = dependencies or _dependencies()
    seeds = sweep.seeds_from(read([]).seed)
    for settings in sweep.settings():
        for seed in seeds:
            yield _point(read, settings, seed, dependencies)


def _dependencies() -> Dependencies:
    """Return a function from a Plan to the versions of code and data that its results depend on. It reads each once."""
    code = cache(code_version)
    data = cache(content_digest)
    sources = cache(source_digest)

    def of(plan: Plan) -> dict[str, Any]:
        folders = [sources(path) for path in code_folders(plan)]
        own = {"folders": folders} if folders else {}  # else ids would change
        return {"code": code(plan.facilities.sources), "data": [data(path) for path in data_files(plan)], **own}

    return of


def _point(read: Read, settings: dict[str, str], seed: int, dependencies: Dependencies) -> SweepPoint:
    scenario = read([*(f"{path}={value}" for path, value in settings.items()), f"seed={seed}"])
    plan = build_plan(scenario)
    # the first 16 hexadecimal digits tell a sweep's points apart, and are short enough for a directory's name
    key = sha256_of({"plan": json.loads(to_json(plan)), **dependencies(plan)})[:ID_LETTERS]
    return SweepPoint(key, settings, seed, plan, scenario)


def maker(scenario: Path, on: str | None, allow_code: bool = False) -> Callable[[Mapping[str, str], int], SweepPoint]:
    """Return a function that makes the point of the scenario with given settings and seed."""
    read = partial(load, scenario, on=on, sweeping=True, allow_code=allow_code)
    dependencies = _dependencies()
    return lambda settings, seed: _point(read, dict(settings), seed, dependencies)


def index_of(
    points: Sequence[SweepPoint],
    scenario: Path,
    sweep: SweepSettings,
    left_out: Mapping[str, str],
    tuning: Tuning | None = None,
) -> dict[str, Any]:
    """Return the content of ``sweep.json``: every point in order, with its settings.

    left_out  techniques that cannot run, with the reason
    tuning    how a setting of the points was tuned
    """
    rows = [{"id": point.id, "settings": dict(point.settings), "seed": point.seed} for point in points]
    found = {"schema_version": 1, "scenario": scenario.name, "varied": list(sweep.varied()), "points": rows}
    more = {"left_out": dict(left_out), "tuning": asdict(tuning) if tuning else None}
    return {**found, **{key: value for key, value in more.items() if value}}
