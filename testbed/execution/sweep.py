"""A sweep: every point of a grid run once, results keyed by content, one table at the end.

    <directory>/sweep.json      the points in order            <directory>/runs/<id>/   one run directory each
    <directory>/sweep.csv       one row per point and seed

Points share nothing while they run: a run belongs to the process that claimed its directory. The next call of the same
sweep, also after kill -9, runs what is not done. The table is made from the run directories alone, so it does not
depend on interruptions.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import ScenarioError
from testbed.execution.sweep_points import SweepPoint, index_of
from testbed.execution.sweep_pool import Followers, OnState, Pool
from testbed.results import FINISHED, atomic
from testbed.results.rundir import RunDirectory
from testbed.results.summary import read_result
from testbed.scenario.sweep import SweepSettings
from testbed.units import parse_whole

MEASURES = ("rounds", "accuracy", "round_time_s", "time_to_target_s", "training_s")


@dataclass(frozen=True, slots=True)
class SweepShard:
    """Part ``number`` (from 1) of ``count``: every ``count``-th point, for several machines on one file system."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> SweepShard:
        """Parse ``2/4``. Raise ``ScenarioError`` for anything else."""
        number, slash, count = text.partition("/")
        try:
            shard = cls(parse_whole(number), parse_whole(count))
        except ValueError:
            shard = cls(0, 0)
        if not (slash and 1 <= shard.number <= shard.count):
            raise ScenarioError(f"--shard {text}: expected i/n with 1 <= i <= n, e.g. 2/4")
        return shard

    def of(self, points: list[SweepPoint]) -> list[SweepPoint]:
        """The points of this part."""
        return points[self.number - 1 :: self.count]


@dataclass(frozen=True, slots=True)
class SweepJob:
    """A sweep to be executed: where, which points, how many runs at once, and what follows each of them."""

    directory: Path
    scenario: Path
    sweep: SweepSettings
    points: list[SweepPoint]
    jobs: int = 1
    shard: SweepShard = SweepShard()
    retry_failed: bool = False
    followers: Followers = tuple

    def path(self, point: SweepPoint) -> Path:
        """The run directory of a point."""
        return self.directory / "runs" / point.id


def execute(job: SweepJob, on_state: OnState) -> list[dict[str, Any]]:
    """Run what is not done; return the rows of the table. An interruption loses at most the runs under way."""
    job.directory.mkdir(parents=True, exist_ok=True)
    atomic.sweep(job.directory)
    mine = job.shard.of(job.points)
    atomic.write_json(job.directory / "sweep.json", index_of(job.points, job.scenario, job.sweep))
    pool = Pool(job.path, job.scenario.read_bytes(), on_state, job.retry_failed, job.followers)
    pool.run(mine, job.jobs)
    rows = table(job)
    atomic.write_text(job.directory / "sweep.csv", as_csv(rows))
    return rows


def default_jobs(points: list[SweepPoint]) -> int:
    """As many simulations at once as there are cores; one real run, as real runs would slow each other down."""
    simulated = all(point.plan.back_end == "simulate" for point in points)
    return len(os.sched_getaffinity(0)) if simulated else 1


def table(job: SweepJob) -> list[dict[str, Any]]:
    """One row per point, in order, from the run directories alone. Times in s, traffic in bytes, accuracy as share."""
    return [_row(point, job.path(point)) for point in job.points]


def _row(point: SweepPoint, path: Path) -> dict[str, Any]:
    status = RunDirectory(path).status()
    known = path.joinpath("result.json").is_file() and status.state in FINISHED
    result: Mapping[str, Any] = read_result(path / "result.json") if known else {}
    moved = result.get("wan_payload_bytes")
    return {
        "run": point.id,
        **point.settings,
        "seed": point.seed,
        "back_end": point.plan.back_end,
        "status": status.state,
        **{name: result.get(name) for name in MEASURES},
        "wan_bytes": sum(each["up"] for each in moved.values()) if moved is not None else None,
        "fidelity": result["fidelity"]["status"] if result else None,
        "parameters_sha256": result.get("parameters_sha256"),
        "message": status.message,
    }


def as_csv(rows: list[dict[str, Any]]) -> str:
    """The rows as CSV; floats with all digits."""
    stream = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(stream, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
