"""``jobs.json``: the jobs of a run that share one network. ``jobs/NAME`` is the run directory of each job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from testbed.results.rundir import read_json

FILE = "jobs.json"
NETWORK = "network.json"
JOBS = "jobs"  # below the directory: the run directory of each job


def has_jobs(path: Path) -> bool:
    """Return whether a directory belongs to a run with several jobs."""
    return (path / FILE).is_file()


def names_of_jobs(path: Path) -> list[str]:
    """Return the jobs' names, in the order of their scenario. Raise ``TestbedError`` if the file is damaged."""
    return [str(job["name"]) for job in read_json(path / FILE).get("jobs", [])]


def folder(path: Path, name: str) -> Path:
    """Return the run directory of a job."""
    return path / JOBS / name


def neighbours(path: Path) -> list[str]:
    """Return the jobs with which the run in ``path`` shared its network. Raise as ``names_of_jobs``."""
    path = path.absolute()
    whole = path.parent.parent
    if path.parent.name != JOBS or not has_jobs(whole):
        return []
    return [name for name in names_of_jobs(whole) if name != path.name]


def runs_in(path: Path) -> Iterator[Path]:
    """Yield the run directories that ``path`` stands for: those of its jobs, or itself. Raise as ``names_of_jobs``."""
    if has_jobs(path):
        yield from (folder(path, name) for name in names_of_jobs(path))
    else:
        yield path
