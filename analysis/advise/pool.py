"""Simulates several Plans at the same time, each in a process forked from this one after its imports.

A process with threads, such as that of a notebook, must not be forked. There, Plans are simulated in this process, one
after another.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Generic, TypeVar

from analysis.advise.observation import FAILED, Limits, Observation, observe
from testbed.errors import TestbedError
from testbed.execution.sweep_run import fork_point, warm_up
from testbed.plan.model import Plan
from testbed.processes.child import Child, first_to_end

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Task(Generic[Key]):
    """A Plan to simulate. ``key``: identifies the task for the caller."""

    key: Key
    plan: Plan
    limits: Limits


def prepare(plans: Sequence[Plan]) -> None:
    """Import the modules and read the data that every simulation needs, once, before the first fork."""
    warm_up(plans)


def simulate_all(tasks: Iterable[Task[Key]], jobs: int) -> Iterator[tuple[Task[Key], Observation]]:
    """Simulate the tasks, at most ``jobs`` at once, and yield the results as they come.

    A task is taken from ``tasks`` only when a process is free for it, so it may depend on earlier observations.
    """
    if jobs > 1 and threading.active_count() == 1:
        yield from _forked(iter(tasks), jobs)
    else:
        for task in tasks:
            yield task, _tried(task)


def _forked(tasks: Iterator[Task[Key]], jobs: int) -> Iterator[tuple[Task[Key], Observation]]:
    running: dict[Child, Task[Key]] = {}
    with TemporaryDirectory(prefix="testbed-") as folder:
        try:
            waiting = True
            while waiting or running:
                while waiting and len(running) < jobs:
                    task = next(tasks, None)
                    if task is None:
                        waiting = False
                    else:
                        running[_fork(task, Path(folder))] = task
                if running:
                    child = first_to_end(running)
                    yield running.pop(child), _result_of(child, Path(folder))
        finally:
            for child in running:
                child.close()


def _fork(task: Task[Key], folder: Path) -> Child:
    def body() -> int:
        found = _tried(task)
        _place(folder, os.getpid()).write_bytes(pickle.dumps(found))
        return 0

    return fork_point(body)


def _place(folder: Path, pid: int) -> Path:
    return folder / f"{pid}.pickle"


def _result_of(child: Child, folder: Path) -> Observation:
    code = child.close()
    path = _place(folder, child.pid)
    with suppress(OSError):
        found = pickle.loads(path.read_bytes())  # noqa: S301 - written by a child of this process
        path.unlink()
        assert isinstance(found, Observation)
        return found
    return Observation(FAILED, f"its process ended with code {code}")


def _tried(task: Task[Key]) -> Observation:
    try:
        return observe(task.plan, task.limits)
    except TestbedError as error:
        return Observation(FAILED, str(error))
