"""One process of a program's run: its output, its events, and its failure."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.errors import RunFailed
from testbed.execution.programs.launch import Counters, ProgramProcess
from testbed.execution.programs.metrics import FileTail, Metrics
from testbed.processes.child import Child
from testbed.results.events import EventLog

LINES_SHOWN = 12  # of the log of a process that failed
_TAIL_BYTES = 16_384
_CHUNK_BYTES = 1 << 16


def failure(process: ProgramProcess, code: int, killer: str) -> RunFailed:
    """Return the error of a run after the failure of a process: node, cause, and the last lines of its log.

    ``code``: exit status, or minus the signal; ``killer``: who killed the process, as far as the kernel tells.
    """
    node = process.node
    lines = last_lines(process.log)
    if code < 0:
        hint = f" ({killer})" if killer else ""
        known = -code in set(signal.Signals)  # real-time signals have no names
        name = f", {signal.Signals(-code).name}" if known else ""
        how = f"was ended by signal {-code}{name}{hint}"
    else:
        how = f"ended with exit status {code}"
    error = RunFailed(f"{node.name} (rank {node.rank}) {how}: {lines[-1] if lines else 'it wrote nothing'}")
    shown = "".join(f"\n  {line}" for line in lines)
    error.add_note(f"command: {' '.join(process.argv)}\nlast lines of {process.log}:{shown}")
    return error


def last_lines(log: Path) -> list[str]:
    """Return the last lines of a log that are not empty."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return list(deque((line for line in text.splitlines() if line.strip()), LINES_SHOWN))


class RunningProcess:
    """A process that has been started. Its event log is open until ``close``."""

    def __init__(
        self,
        process: ProgramProcess,
        child: Child,
        directory: Path,
        now_s: float,
        counters: Callable[[str], Counters | None],
        training: Mapping[str, object] | None = None,
    ) -> None:
        """Begin to record.

        directory  the run directory
        counters   returns the counters of a node's network interface
        training   fields of the event ``train``, for the first process only
        """
        self.process = process
        self.child = child
        self._metrics = Metrics(now_s)
        self._output = bytearray()
        self.file: FileTail | None = None  # the file of metrics, if the program writes one
        self._events = EventLog(directory / "events", process.node.name)
        self._rounds = 0
        self._counters = counters
        self._before = counters(process.node.name)
        self._events.write("start", now_s, role="worker", data_center=process.node.data_center, pid=child.pid)
        if training is not None:
            self._events.write("train", now_s, workers=training["workers"], rounds=training["rounds"])

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that become readable: the process at its end, and its standard output at new output."""
        ends = self.child.fileno()
        return (ends,) if self.child.stdout is None else (ends, self.child.stdout.fileno())

    def read_output(self) -> bool:
        """Read once from the standard output, which carries metrics; return whether there may be more."""
        assert self.child.stdout is not None
        data = os.read(self.child.stdout.fileno(), _CHUNK_BYTES)
        self._output += data
        with open(self.process.log, "ab") as log:
            log.write(data)
        return bool(data)

    def new_events(self, now_s: float, last: bool = False) -> Iterator[dict[str, Any]]:
        """Record what the program has reported since the last call, and yield it as lines of progress.

        ``last``: the program has ended, and its last line may lack the newline.
        """
        data, self._output = bytes(self._output), bytearray()
        if self.file is not None:
            data = self.file.new()
        data += b"\n" * last
        for kind, fields in self._metrics.take(data, now_s) if data else ():
            self._events.write(kind, now_s, **fields)
            self._rounds += kind == "round"
            yield {"kind": kind, "t": now_s, "node": self.process.node.name, **fields}

    def status(self, now_s: float) -> dict[str, Any]:
        """Record the counters of the interface; return a line of progress."""
        self._count(now_s)
        self._events.flush()
        return {
            "kind": "status",
            "t": now_s,
            "round": self._metrics.last_step,
            "loss": self._metrics.last_loss,
            "waiting_for": "",
            "waits": [],
            "activity": self._rounds,
        }

    def wait(self) -> int:
        """Wait for the end, and read the rest of the output; return the exit status, negative after a signal."""
        code = self.child.wait()
        assert code is not None
        while self.child.stdout is not None and self.read_output():
            pass
        return code

    def close(self, now_s: float) -> None:
        """Write the last events, and close everything."""
        self._count(now_s)
        self.child.close()
        self._events.write("final", now_s, role="worker", rounds=self._rounds, cpu_s=round(self.child.cpu_s, 3))
        self._events.close()

    def _count(self, now_s: float) -> None:
        found = self._counters(self.process.node.name)
        if found is not None and self._before is not None:
            sent, received = (now - before for now, before in zip(found, self._before, strict=True))
            self._events.write("interface", now_s, sent_bytes=sent, received_bytes=received)
