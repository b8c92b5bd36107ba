"""Run directories as plain objects with tidy pandas frames that are read on demand.

``testbed.results.columns`` describes the tables, their columns and units.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from testbed.errors import ScenarioError
from testbed.facilities import Facilities, facilities_of
from testbed.plan.model import completed
from testbed.results import rundir, summary, tables
from testbed.results.columns import TABLES
from testbed.results.job_index import runs_in
from testbed.results.manifest import Manifest
from testbed.suggest import nearest_or_all

if TYPE_CHECKING:
    import pandas as pd


NOT_LOGGED = "where the time of a round went is not known: logs are brief (simulation.events)"


class _Fidelity(TypedDict):
    """The field of ``fidelity.json`` that is checked when it is read."""

    status: Literal["ok", "degraded"]


class Tables(Mapping[str, "pd.DataFrame"]):
    """The tables of a run by name, each read on first access. ``known``: tables that are already in memory."""

    def __init__(self, run: Path, known: Mapping[str, pd.DataFrame]) -> None:
        self._run = run
        self._known = dict(known)

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in TABLES:
            raise KeyError(f"there is no table {name!r}; {nearest_or_all(name, TABLES)}")
        if name not in self._known:
            stored = (self._run / "tables" / f"{name}.parquet").is_file()
            # without Parquet all tables come from one pass over the events
            self._known |= tables.read(self._run, (name,) if stored else tuple(TABLES))
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in TABLES

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)

    def __repr__(self) -> str:
        return f"<tables {', '.join(TABLES)}>"


@dataclass(frozen=True)
class StoredRun:
    """One run directory.

    plan      the content of ``plan.json``
    manifest  the content of ``manifest.json``; empty if there is none
    result    the content of ``result.json``; ``None`` if there is none yet; ``fidelity`` likewise
    """

    path: Path
    plan: dict[str, Any]
    manifest: dict[str, Any]
    result: dict[str, Any] | None
    fidelity: dict[str, Any] | None
    status: rundir.RunStatus
    tables: Tables = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The name of the directory, or of the link by which the run was opened, as in a sweep."""
        return Path(os.path.abspath(self.path)).name  # noqa: PTH100 - which follows no link

    @property
    def title(self) -> str:
        """The scenario's name and the back end, as text for people."""
        return f"{self.plan['name']} on {self.plan['back_end']}"

    @property
    def facilities(self) -> Facilities:
        """The facilities of the back end that made the run."""
        return facilities_of(self.plan)

    @property
    def program(self) -> dict[str, Any] | None:
        """The plan's program; ``None`` unless the run was of a user's program."""
        found: dict[str, Any] | None = self.plan.get("program")
        return found

    @property
    def traced(self) -> dict[str, Any] | None:
        """The plan's execution trace of a job; ``None`` unless the run played one."""
        found: dict[str, Any] | None = self.plan.get("traced")
        return found

    @property
    def provenance(self) -> dict[str, str]:
        """Texts about the ``testbed``, ``software`` and ``machine`` of the run; empty without a complete manifest."""
        about = self.manifest
        if not about.get("packages"):
            return {}
        own = about["testbed"]
        machine = about["machine"]
        commit = (own["git_commit"] or "no checkout")[:12] + (" with changes" if own["git_dirty_sha256"] else "")
        packages = ", ".join(f"{name} {about['packages'][name]}" for name in ("torch", "numpy"))
        return {
            "testbed": f"{own['version']} ({commit})",
            "software": f"Python {about['python']}, {packages}, {machine['system']} {machine['kernel']}",
            "machine": f"{machine['cpu']}, {machine['usable_cores']} of {machine['cores']} cores",
        }

    @property
    def start_s(self) -> float:
        """When training started, on the run's clock; earlier if the run resumed from a checkpoint of another run."""
        return summary.first_start_s(self.tables["training"])

    @property
    def logs_work(self) -> bool:
        """Whether nodes logged their work within rounds. Brief logs (``simulation.events``) only time whole rounds."""
        return not self.tables["computes"].empty

    @cached_property
    def time_split(self) -> pd.DataFrame:
        """The mean time per round of each node, by part; nodes in the Plan's order. See ``analysis.breakdown``."""
        from analysis.breakdown import in_plan_order, per_node, per_rank

        split = per_node if self.traced is None else per_rank
        return in_plan_order(split(self.tables), self.plan)

    @property
    def scenario_key(self) -> str:
        """A key that is equal for runs of the same scenario and seed on different back ends."""
        return summary.sha256_of(_without_back_end(self.plan))


def load_run(path: Path) -> StoredRun:
    """Open a run directory. Raise ``ScenarioError`` if it is not one, ``TestbedError`` if a file of it is damaged."""
    directory = rundir.open_run(path)
    result = directory.file("result.json")
    if not os.path.lexists(directory.file("plan.json")):
        raise ScenarioError(f"{path}: has no plan.json: the run ended before it was planned; run the scenario again")
    status = directory.status()
    return StoredRun(
        path=path,
        plan=_plan(directory.file("plan.json"), status.plan_sha256),
        manifest=_optional(directory.file("manifest.json"), Manifest) or {},
        result=summary.read_result(result) if os.path.lexists(result) else None,
        fidelity=_optional(directory.file("fidelity.json"), _Fidelity),
        status=status,
        tables=Tables(path.absolute(), {}),  # the working directory may change before they are read
    )


def distinct_names(runs: Iterable[StoredRun]) -> list[str]:
    """Return the runs' names; the second and further runs with an equal name have a number appended."""
    names: list[str] = []
    for run in runs:
        numbered = (run.name if number == 1 else f"{run.name}-{number}" for number in count(1))
        names.append(next(name for name in numbered if name not in names))
    return names


def stored_run(
    path: Path, plan: dict[str, Any], result: dict[str, Any], frames: Mapping[str, pd.DataFrame]
) -> StoredRun:
    """Return a run that has just ended, without reading again what the caller has in memory."""
    directory = rundir.open_run(path)
    manifest, fidelity = (rundir.read_json(directory.file(f"{name}.json")) for name in ("manifest", "fidelity"))
    return StoredRun(path, plan, manifest, result, fidelity, directory.status(), Tables(path.absolute(), frames))


def load(paths: Iterable[Path]) -> list[StoredRun]:
    """Open run directories. A directory that is given twice, for example by a link, is opened once.

    The directory of a run with several jobs stands for the directories of its jobs.
    """
    first: dict[Path, Path] = {}
    for path in (each for given in paths for each in runs_in(given)):
        first.setdefault(path.resolve(), path)
    return [load_run(path) for path in first.values()]


def _optional(path: Path, form: type[Any]) -> dict[str, Any] | None:
    return rundir.read_json(path, form) if os.path.lexists(path) else None


def _plan(path: Path, sha256: str) -> dict[str, Any]:
    """Return the content of ``plan.json``, with defaults for fields that older releases lack.

    Raise ``TestbedError`` unless it is a Plan, and the one that ``status.json`` names.
    """
    content = rundir.read_json(path)
    try:
        plan = completed(content)
    except ValueError as error:
        raise rundir.damaged(path, str(error)) from error
    if sha256 and summary.sha256_of(content) != sha256:
        raise rundir.damaged(path, "it is not the plan that status.json names")
    return plan


_OF_BACK_END = ("back_end", "warnings", "timeouts", "transport", "cluster", "simulation")


def _without_back_end(plan: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in plan.items() if key not in _OF_BACK_END}
    placed = ("address", "port")
    kept["nodes"] = [{key: value for key, value in node.items() if key not in placed} for node in plan["nodes"]]
    sites = [{key: value for key, value in site.items() if key != "subnet"} for site in plan["network"]["sites"]]
    kept["network"] = {**plan["network"], "sites": sites}
    return kept
