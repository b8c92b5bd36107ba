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
        with ours, its:
            # In a session of its own and no child of ours: it has to outlive us, to remove its directory.
            # -P: it imports the code that was sent, and not what lies in the working directory.
            command = ["setsid", "--fork", sys.executable, "-P", "-c", _MAIN, str(its.fileno())]
            subprocess.run(
                command, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, check=True,
            )  # fmt: skip
            self._connection = Connection(ours.detach())
        self._stored = set[str]()

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
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
        """Wait for the point's end and return its pickled result. Start another process if this one was killed."""
        try:
            return self._connection.recv_bytes()
        except (EOFError, ConnectionResetError):
            self.close()
            self._start()
            return PointLost("the process that runs the machine's points was killed")

    def close(self) -> None:
        """End the process, and with it the point that it runs."""
        self._connection.close()


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
