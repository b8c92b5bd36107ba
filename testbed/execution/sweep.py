"""A sweep: runs every point of a grid once, stores results by the content of the point, and makes a table of them.

    <directory>/sweep.json      the points in order        <directory>/runs/<id>/              one run directory each
    <directory>/sweep.csv       one row per point and seed  <directory>/runs/<point>-seed<n>  a link to it

Points run on this machine or on those of a cluster. They share nothing while they run: a run belongs to the process
that claimed its directory. If the same sweep is started again, also after kill -9, only unfinished points run. The
table is made from the run directories alone, so it does not depend on interruptions, nor on where points ran.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import ScenarioError
from testbed.execution.sweep_cluster import ClusterPool, joined
from testbed.execution.sweep_points import SweepPoint, index_of
from testbed.execution.sweep_pool import LocalPool, OnState, Pool, Warn
from testbed.execution.sweep_run import Followers
from testbed.results import FINISHED, atomic, owner
from testbed.results.rundir import RunDirectory
from testbed.results.summary import missed_faults, read_result, wan_bytes_of
from testbed.results.sweep_index import Tuning
from testbed.scenario.sweep import SweepSettings
from testbed.scenario.sweep_labels import link_names

MEASURES = (
    "rounds",
    "accuracy",
    "accuracy_at_target",
    "round_time_s",
    "step_time_s",
    "samples_per_s",
    "time_to_target_s",
    "evaluations_to_target",
    "training_s",
)


@dataclass(frozen=True, slots=True)
class SweepJob:
    """A sweep to be executed.

    jobs       runs at once; by default ``default_jobs`` on this machine, and on a cluster as many as fit on it
    followers  makes the followers of each run, as in ``PointRun``
    cluster    address of a cluster whose machines run the points; empty: they run on this machine
    left_out   techniques that cannot run on this scenario, by name, with the reason
    tuning     how a setting of the points was tuned
    """

    directory: Path
    scenario: Path
    sweep: SweepSettings
    points: list[SweepPoint]
    jobs: int | None = None
    retry_failed: bool = False
    followers: Followers = tuple
    cluster: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    tuning: Tuning | None = None

    def path(self, point: SweepPoint) -> Path:
        return self.directory / "runs" / point.id

    @property
    def at_once(self) -> str:
        """How many runs there are at once, as a text for the user."""
        if self.cluster:
            return f"at most {self.jobs} at once on a cluster" if self.jobs else "on a cluster"
        return f"{self.jobs or default_jobs(self.points)} at once"


def _print_warning(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)  # noqa: T201 - for callers that do not show warnings


def execute(job: SweepJob, on_state: OnState, warn: Warn = _print_warning) -> list[dict[str, Any]]:
    """Run the points that are not done; return the rows of the table. An interruption loses at most the runs under way.

    ``on_state`` is called when the state of a point changes, ``warn`` with messages about machines of a cluster and
    about damaged files.
    """
    if job.cluster:
        if any(point.plan.is_spread for point in job.points):
            raise ScenarioError(
                "--cluster: a point may use one machine, but a run of this scenario uses several; leave --cluster "
                "out to make the runs one after the other, or give another --on"
            )
        with joined(job.cluster, job.points) as files:  # raises before anything is written
            return _execute(job, on_state, warn, files)
    return _execute(job, on_state, warn, {})


def _execute(job: SweepJob, on_state: OnState, warn: Warn, files: Mapping[str, str]) -> list[dict[str, Any]]:
    job.directory.mkdir(parents=True, exist_ok=True)
    atomic.sweep(job.directory)
    index = index_of(job.points, job.scenario, job.sweep, job.left_out, job.tuning)
    atomic.write_json(job.directory / "sweep.json", index)
    pool: Pool
    if job.cluster:
        scenario = job.scenario.read_bytes()
        pool = ClusterPool(job.path, scenario, on_state, warn, job.jobs, job.retry_failed, job.followers, files=files)
    else:
        pool = _local_pool(job, on_state, warn)
    _link(job, warn)
    pool.run(job.points)
    rows = table(job)
    atomic.write_text(job.directory / "sweep.csv", as_csv(rows))
    return rows


def run_points(job: SweepJob, points: Sequence[SweepPoint], warn: Warn) -> None:
    """Run points on this machine, in the directory of a sweep. They need not belong to the sweep."""
    _local_pool(job, lambda point, state: None, warn).run(points)


def _local_pool(job: SweepJob, on_state: OnState, warn: Warn) -> LocalPool:
    jobs = job.jobs or default_jobs(job.points)
    return LocalPool(job.path, job.scenario.read_bytes(), on_state, warn, jobs, job.retry_failed, job.followers)


def _link(job: SweepJob, warn: Warn) -> None:
    """Link names to the runs, and remove links of points that are no longer in the sweep."""
    folder = job.directory / "runs"
    if not folder.exists():
        folder.mkdir(exist_ok=True)
        owner.give([folder])
    links = dict(zip(link_names(job.points), (point.id for point in job.points), strict=True))
    try:
        for entry in folder.iterdir():
            if entry.is_symlink() and links.get(entry.name) != str(entry.readlink()):
                entry.unlink(missing_ok=True)
        for name, target in links.items():
            if not os.path.lexists(folder / name):
                with suppress(FileExistsError):  # made just now by another process of this sweep
                    (folder / name).symlink_to(target)
                    owner.give([folder / name])
    except OSError as error:  # a file system without links
        warn(f"{folder}: no links to runs by name ({error.strerror}); sweep.csv says which run is which")


def default_jobs(points: list[SweepPoint]) -> int:
    """Return how many runs there are at once: one per core in virtual time; else one, as others would slow it down."""
    virtual = all(point.plan.facilities.in_virtual_time for point in points)
    return len(os.sched_getaffinity(0)) if virtual else 1


def table(job: SweepJob) -> list[dict[str, Any]]:
    """Return one row per point, in order, from the run directories alone. Times are in s, traffic is in bytes."""
    return [_row(point, job.path(point)) for point in job.points]


def _row(point: SweepPoint, path: Path) -> dict[str, Any]:
    status = RunDirectory(path).status()
    known = path.joinpath("result.json").is_file() and status.state in FINISHED
    result: Mapping[str, Any] = read_result(path / "result.json") if known else {}
    interval = result.get("round_s", {})
    return {
        "run": point.id,
        **point.settings,
        "seed": point.seed,
        "back_end": point.plan.back_end,
        "status": status.state,
        **{name: result.get(name) for name in MEASURES},
        "round_low_s": interval.get("low"),
        "round_high_s": interval.get("high"),
        "summed_gradients": point.plan.summed_gradients,
        "wan_bytes": wan_bytes_of(result) if result else None,
        "missed_faults": missed_faults(result) if result else "",
        "fidelity": result["fidelity"]["status"] if result else None,
        "parameters_sha256": result.get("parameters_sha256"),
        "message": status.message,
    }


def as_csv(rows: list[dict[str, Any]]) -> str:
    """Return the rows as CSV; floats with all digits."""
    stream = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(stream, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
