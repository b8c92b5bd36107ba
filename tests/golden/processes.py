"""Measures scenarios, each in a process forked from this one, which has imported everything."""

from __future__ import annotations

import io
import json
import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import testbed.engine.roles
import testbed.execution.simulate
import testbed.simulation.run  # noqa: F401 - what every child needs
from testbed.execution.compiler import leave_out_compiler
from tests.golden.first_rounds import measure


def measure_all(names: Sequence[str], jobs: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each name and its values when they are measured, ``jobs`` of them at once."""
    leave_out_compiler()
    fork = multiprocessing.get_context("fork")
    waiting = list(reversed(names))
    running = {}
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop()
                file = Path(folder) / f"{len(waiting)}.json"
                process = fork.Process(target=_measure_into, args=(name, file), daemon=True)
                process.start()
                running[process.sentinel] = (name, file, process)
            for sentinel in wait(list(running)):
                name, file, process = running.pop(sentinel)
                process.join()
                if process.exitcode == 0:
                    yield name, json.loads(file.read_text(encoding="utf-8"))
                else:
                    yield name, {"status": f"failed: its process ended with {process.exitcode}"}


def _measure_into(name: str, file: Path) -> None:
    with redirect_stdout(io.StringIO()):  # what users' scripts print
        values = measure(name)
    file.write_text(json.dumps(values), encoding="utf-8")
