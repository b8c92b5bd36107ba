"""What push and pull are compared with, in the same run: Gloo, MPICH, a bare socket server, and a user's command.

All move a tensor of ones of the same size between the same number of processes, again and again. Workers are as nice to
other processes as those of a run (``WORKER_NICENESS``): else they would win where a machine is busy.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import selectors
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.benchmarks.push_pull import WARM_UP
from testbed.environment import host_environment
from testbed.realtime.child import WORKER_NICENESS

DEADLINE_S = 600.0  # of one run
OVER_TCP = ":tcp"
Found = dict[str, Any]  # ``times_s``, and where they are known the other columns of a row


@dataclass(frozen=True, slots=True)
class Job:
    """One run: ``workers`` processes move ``size_bytes`` in ``keys`` parts, ``repeats`` times after the warm-up."""

    workers: int
    size_bytes: int
    keys: int
    repeats: int
    folder: Path


def mpich() -> str | None:
    """Return MPICH's ``mpiexec``, of this interpreter's environment or of the path; ``None`` where there is none."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def measure_gloo(job: Job) -> Found:
    from torch.multiprocessing.spawn import spawn

    spawn(_gloo_worker, (job,), nprocs=job.workers)  # type: ignore[no-untyped-call]
    return dict(json.loads((job.folder / "peer.json").read_text(encoding="utf-8")))


def _gloo_worker(rank: int, job: Job) -> None:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    os.nice(WORKER_NICENESS)
    store = f"file://{job.folder}/store"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=job.workers)
    tensors = [torch.ones(job.size_bytes // 4 // job.keys) for _ in range(job.keys)]

    def step() -> None:
        for work in [distributed.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()

    _repeat(job, rank, distributed.barrier, step)
    distributed.destroy_process_group()


def measure_ring(code: str, job: Job) -> Found:
    """This project's ring all-reduce; ``code`` as in ``analysis.benchmarks.transport``."""
    numbers = [str(each) for each in (job.workers, job.size_bytes, job.keys, job.repeats)]
    kind = "tcp" if code.endswith(OVER_TCP) else "shared"
    command = [sys.executable, "-m", "analysis.benchmarks.all_reduce", *numbers, str(job.folder)]
    subprocess.run(
        [*command, code.removesuffix(OVER_TCP), kind], env=host_environment(), check=True, timeout=DEADLINE_S
    )
    return dict(json.loads((job.folder / "peer.json").read_text(encoding="utf-8")))


def measure_mpich(job: Job) -> Found:
    launcher = mpich()
    assert launcher is not None
    numbers = [str(each) for each in (job.workers, job.size_bytes, job.keys, job.repeats)]
    command = [launcher, "-n", numbers[0], sys.executable, "-m", __name__, *numbers, str(job.folder)]
    subprocess.run(command, check=True, timeout=DEADLINE_S, stdout=subprocess.DEVNULL)
    return dict(json.loads((job.folder / "peer.json").read_text(encoding="utf-8")))


def _mpich_worker(job: Job) -> None:
    import numpy as np
    from mpi4py import MPI

    os.nice(WORKER_NICENESS)
    tensors = [np.ones(job.size_bytes // 4 // job.keys, np.float32) for _ in range(job.keys)]
    sums = [np.empty_like(tensor) for tensor in tensors]

    def step() -> None:
        for tensor, total in zip(tensors, sums, strict=True):
            MPI.COMM_WORLD.Allreduce(tensor, total)

    _repeat(job, MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Barrier, step)


def _repeat(job: Job, rank: int, barrier: Callable[[], object], step: Callable[[], None]) -> None:
    """Time the steps; rank 0 writes what it has found."""
    timer = RepeatTimer(job)
    for _ in timer.repeats():
        barrier()
        begin_s = time.perf_counter()
        step()
        timer.add(time.perf_counter() - begin_s)
    if rank == 0:
        timer.write()


class RepeatTimer:
    """What one process takes for a job: seconds of each repeat after the warm-up, page faults, processor time."""

    def __init__(self, job: Job) -> None:
        self._job, self._times_s = job, list[float]()
        self._faults, self._cpu_s = 0, 0.0

    def repeats(self) -> Iterator[int]:
        """Count the repeats, those of the warm-up included."""
        for repeat in range(WARM_UP + self._job.repeats):
            if repeat == WARM_UP:
                self._faults, self._cpu_s = _faults(), time.process_time()
            yield repeat

    def add(self, time_s: float) -> None:
        self._times_s.append(time_s)

    def write(self) -> None:
        moved_bytes = 2 * self._job.size_bytes * self._job.repeats
        found = {
            "times_s": self._times_s[WARM_UP:],
            "faults_per_mb": (_faults() - self._faults) / (moved_bytes / 1e6),
            "worker_cpu_s_per_gb": (time.process_time() - self._cpu_s) / (moved_bytes / 1e9),
        }
        (self._job.folder / "peer.json").write_text(json.dumps(found), encoding="utf-8")


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def measure_socket(job: Job) -> Found:
    """Measure a server without protocol, authentication or events: bytes in, sum, bytes out, over TCP."""
    fork = multiprocessing.get_context("fork")
    listener = socket.create_server(("127.0.0.1", 0), backlog=job.workers)
    address, barrier = listener.getsockname(), fork.Barrier(job.workers)
    clients = [fork.Process(target=_socket_worker, args=(rank, job, address, barrier)) for rank in range(job.workers)]
    server = fork.Process(target=_socket_server, args=(job, listener))
    for process in (server, *clients):
        process.start()
    listener.close()
    for process in (server, *clients):
        process.join(DEADLINE_S)
        if process.exitcode != 0:
            raise RuntimeError(f"the bare socket server's {process.name} ended with {process.exitcode}")
    found = dict(json.loads((job.folder / "peer.json").read_text(encoding="utf-8")))
    return found | dict(json.loads((job.folder / "server.json").read_text(encoding="utf-8")))


def _socket_worker(rank: int, job: Job, address: tuple[str, int], barrier: Any) -> None:
    import numpy as np

    os.nice(WORKER_NICENESS)
    sock = socket.create_connection(address)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(bytes([rank]))
    ones, total = np.ones(job.size_bytes // 4, np.float32), np.empty(job.size_bytes // 4, np.float32)

    def step() -> None:
        sock.sendall(memoryview(ones).cast("B"))  # type: ignore[arg-type]  # a Buffer from 3.12 on
        view = memoryview(total).cast("B")  # type: ignore[arg-type]
        while view:
            count = sock.recv_into(view)
            if not count:
                raise ConnectionError("the server has ended")
            view = view[count:]

    _repeat(job, rank, barrier.wait, step)
    assert total[0] == total[-1] == job.workers


def _socket_server(job: Job, listener: socket.socket) -> None:
    import torch

    torch.set_num_threads(1)
    socks: dict[int, socket.socket] = {}
    for _ in range(job.workers):
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        socks[sock.recv(1)[0]] = sock
        sock.setblocking(False)
    tensors = [torch.empty(job.size_bytes // 4) for _ in range(job.workers)]
    cpu_s = 0.0
    for repeat in range(WARM_UP + job.repeats):
        if repeat == WARM_UP:
            cpu_s = time.process_time()
        views = {socks[rank]: memoryview(tensor.numpy()).cast("B") for rank, tensor in enumerate(tensors)}  # type: ignore[arg-type]
        _move(views, selectors.EVENT_READ, lambda sock, view: sock.recv_into(view))
        total = tensors[0]
        for tensor in tensors[1:]:
            total += tensor
        views = {sock: memoryview(total.numpy()).cast("B") for sock in socks.values()}  # type: ignore[arg-type]
        _move(views, selectors.EVENT_WRITE, lambda sock, view: sock.send(view))
    moved_gb = 2 * job.workers * job.size_bytes * job.repeats / 1e9
    found = {"server_cpu_s_per_gb": (time.process_time() - cpu_s) / moved_gb}
    (job.folder / "server.json").write_text(json.dumps(found), encoding="utf-8")


def _move(
    views: dict[socket.socket, memoryview], event: int, portion: Callable[[socket.socket, memoryview], int]
) -> None:
    """Fill, or send, all of every view, as sockets are ready."""
    with selectors.DefaultSelector() as selector:
        for sock in views:
            selector.register(sock, event, sock)
        while views:
            for key, _ in selector.select():
                ready: socket.socket = key.data
                count = portion(ready, views[ready])
                if not count:
                    raise ConnectionError("a worker has ended")
                views[ready] = views[ready][count:]
                if not views[ready]:
                    selector.unregister(ready)
                    del views[ready]


def measure_command(command: str, job: Job) -> Found:
    """A user's command, such as one that starts ps-lite's benchmark: prints the seconds of each repeat, one a line."""
    settings = {"WORKERS": job.workers, "BYTES": job.size_bytes, "KEYS": job.keys, "REPEATS": job.repeats}
    environment = os.environ | {f"PUSH_{name}": str(value) for name, value in settings.items()}
    done = subprocess.run(
        shlex.split(command), env=environment, check=True, timeout=DEADLINE_S, capture_output=True, text=True
    )
    times_s = [float(line) for line in done.stdout.split()]
    if not times_s:
        raise RuntimeError(f"{command}: printed no seconds")
    return {"times_s": times_s}


if __name__ == "__main__":
    _workers, _size_bytes, _keys, _repeats = map(int, sys.argv[1:5])
    _mpich_worker(Job(_workers, _size_bytes, _keys, _repeats, Path(sys.argv[5])))
