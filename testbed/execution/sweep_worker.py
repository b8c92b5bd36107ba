"""What a worker of Ray does for a sweep: it starts the process that runs points, and passes tasks and results on.

It imports next to nothing, and does not look into tasks and results: each worker would take seconds for what that
process imports once more.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from socket import socketpair
from typing import Any

from testbed.cluster.connection import ClusterMachine, import_ray

_MAIN = "import sys; from testbed.execution.sweep_machine import main; main(int(sys.argv[1]))"
_LAST_BYTES = 4096  # of its standard error

Fetch = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class PointStarted:
    """A machine has begun with the point."""

    machine: ClusterMachine


@dataclass(frozen=True, slots=True)
class PointLost:
    """No result: its process, or its machine, died. Another attempt may succeed."""

    cause: str


class MachineProcess:
    """The process, started from here, runs one point at a time. It ends with the calling process."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        ours, its = socketpair()
        self._errors = os.memfd_create("errors")  # no file: the disk may be what is full
        with ours, its:
            # In a session of its own and no child of ours: it has to outlive us, to remove its directory.
            # -P: it imports the code that was sent, and not what lies in the working directory.
            command = ["setsid", "--fork", sys.executable, "-P", "-c", _MAIN, str(its.fileno())]
            subprocess.run(
                command, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=self._errors, check=True,
            )  # fmt: skip
            self._connection = Connection(ours.detach())
        self._stored = set[str]()

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(
        self, task: bytes, files: Iterable[str], fetch: Fetch, capabilities: Mapping[str, Any] | None = None
    ) -> None:
        """Start a point, a pickled ``PointTask``. ``fetch`` returns the packed content of one of ``files``, digests."""
        new = set(files) - self._stored
        self._stored |= new
        variables = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES")}
        with suppress(BrokenPipeError, ConnectionResetError):  # ``receive`` tells
            self._connection.send(({digest: fetch(digest) for digest in new}, dict(capabilities or {}), variables))
            self._connection.send_bytes(task)

    def receive(self) -> bytes | PointLost:
        """Wait for the point's end and return its pickled result. Start another process if this one has ended."""
        try:
            return self._connection.recv_bytes()
        except (EOFError, ConnectionResetError):
            line = self._last_line()
            how = f"has ended; the last line that it wrote: {line}" if line else "was killed"
            self.close()
            self._start()
            return PointLost(f"the process that runs the machine's points {how}")

    def _last_line(self) -> str:
        """Return the last line that the process has written to its standard error; empty if there is none."""
        size = os.fstat(self._errors).st_size
        text = os.pread(self._errors, _LAST_BYTES, max(0, size - _LAST_BYTES)).decode(errors="replace")
        return text.strip().rpartition("\n")[2]

    def close(self) -> None:
        """End the process, and with it the point that it runs."""
        self._connection.close()
        os.close(self._errors)


_process: MachineProcess | None = None  # of this worker


def run_task(task: bytes, files: Mapping[str, Any]) -> Iterator[PointStarted | PointLost | bytes]:
    """Run a point in the process that this worker keeps for them; arguments as of ``send``, with references of Ray."""
    global _process  # noqa: PLW0603 - one for all tasks of a worker, as it takes seconds to start
    ray = import_ray()
    machine = ClusterMachine(ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address())
    yield PointStarted(machine)
    if _process is None:
        _process = MachineProcess()
    _process.send(task, files, lambda digest: ray.get(files[digest]), {"cluster": {"machine": machine.address}})
    yield _process.receive()
