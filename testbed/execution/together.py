"""Runs the real nodes of several jobs at the same time: a separate process watches each job.

A fleet forks its nodes, waits for them in a loop, and takes the signals of its process. So each of several fleets needs
its own process, forked from this one, which has no threads. Each reports progress through a pipe.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from testbed.errors import Interrupted, RunFailed, TestbedError
from testbed.execution.deployment import STARTING, Deployment
from testbed.processes.child import Child, Line, fork
from testbed.results.progress import Progress

_END = "end of a job"  # the kind of a process' last line
_GRACE_S = 10.0
_KEEPS_OPEN = 1 << 16

RunJob = Callable[[Deployment], None]


class ToldError(TestbedError):
    """An error that another process has reported, with its message, notes and exit code."""

    def __init__(self, line: Line) -> None:
        super().__init__(line["message"])
        self.exit_code = line["exit_code"]
        for note in line["notes"]:
            self.add_note(note)


def run_together(deployments: Sequence[Deployment], run: RunJob) -> list[BaseException | None]:
    """Run each job to its end. Return for each its error, or None. The only job of a run runs in this process.

    The start times of jobs count from this call, when the network is up.
    """
    if len(deployments) == 1:
        try:
            _await_start(deployments[0], time.monotonic(), deployments[0].report)
            run(deployments[0])
        except Exception as error:
            return [error]
        return [None]
    with _JobProcesses(deployments, run) as processes:
        try:
            processes.follow()
        except KeyboardInterrupt:
            processes.interrupt()
            processes.follow()
        return processes.errors()


class _JobProcesses:
    """The processes of all jobs; leaving the context ends them."""

    def __init__(self, deployments: Sequence[Deployment], run: RunJob) -> None:
        self._deployments = deployments
        self._ends: dict[int, BaseException | None] = {}
        self._selector = selectors.DefaultSelector()
        self._children: list[Child] = []
        begin_s = time.monotonic()
        for number, deployment in enumerate(deployments):
            others = [number for each in self._children for number in (each.lines, each.fileno())]
            child = fork(_body(deployment, begin_s, run), close=[*others, self._selector.fileno()])
            self._children.append(child)
            self._selector.register(child.lines, selectors.EVENT_READ, number)

    def __enter__(self) -> _JobProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.end(_GRACE_S)
        self._selector.close()

    def follow(self) -> None:
        """Pass on the progress of all jobs until all have ended."""
        while self._selector.get_map():
            for key, _ in self._selector.select():
                number: int = key.data
                with suppress(BlockingIOError):
                    lines = self._children[number].read()
                    if lines is None:
                        self._selector.unregister(key.fd)
                    for line in lines or ():
                        self._take(number, line)

    def _take(self, number: int, line: Line) -> None:
        if line["kind"] != _END:
            self._deployments[number].report(line)
            return
        self._deployments[number].report({"kind": "ended"})
        if line["interrupted"]:
            self._ends[number] = Interrupted(line["message"])
        else:
            self._ends[number] = ToldError(line) if line["message"] else None

    def interrupt(self) -> None:
        """Ask all jobs to end their nodes in good order."""
        for child in self._children:
            child.send_signal(signal.SIGINT)

    def errors(self) -> list[BaseException | None]:
        """Return for each job its error, or None."""
        found: list[BaseException | None] = []
        for number, child in enumerate(self._children):
            code = child.wait()
            gone = RunFailed(f"the process of this job ended with {code}, without a message (see host.log)")
            found.append(self._ends.get(number, gone))
        return found


def _body(deployment: Deployment, begin_s: float, run: RunJob) -> Callable[[int], int]:
    def body(lines: int) -> int:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored

        def tell(event: dict[str, Any]) -> None:
            data = json.dumps(event).encode() + b"\n"
            while data:
                data = data[os.write(lines, data[:_KEEPS_OPEN]) :]

        error: BaseException | None = None
        try:
            _await_start(deployment, begin_s, tell)
            run(replace(deployment, report=tell))
        except BaseException as caught:
            error = caught
        tell(_end_line(error))
        return 0

    return body


def _await_start(deployment: Deployment, begin_s: float, report: Progress) -> None:
    if start_s := deployment.job.start_s:
        time.sleep(max(0.0, begin_s + start_s - time.monotonic()))
        report(dict(STARTING))


def _end_line(error: BaseException | None) -> Line:
    message = "" if error is None else str(error)
    if error is not None and not isinstance(error, TestbedError | KeyboardInterrupt):
        traceback.print_exception(error)
        message = f"{type(error).__name__}: {error} (an error in testbed itself; see host.log)"
    return {
        "kind": _END,
        "message": message or (type(error).__name__ if error is not None else ""),
        "exit_code": error.exit_code if isinstance(error, TestbedError) else 1,
        "notes": getattr(error, "__notes__", []),
        "interrupted": isinstance(error, Interrupted | KeyboardInterrupt),
    }
