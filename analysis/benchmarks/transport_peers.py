"""What push and pull are compared with, in the same run: Gloo's all-reduce, and a bare socket server.

All move a tensor of ones of the same size between the same number of processes, again and again. Workers are as nice to
other processes as those of a run (``WORKER_NICENESS``): else they would win where a machine is busy.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.benchmarks.push_pull import WARM_UP
from testbed.realtime.child import WORKER_NICENESS

DEADLINE_S = 600.0  # for one run
Found = dict[str, Any]  # ``times_s``, and those other columns of a row that are known


@dataclass(frozen=True, slots=True)
class Job:
    """A run: ``workers`` processes move ``size_bytes`` in ``keys`` parts, ``repeats`` times after the warm-up."""

    workers: int
    size_bytes: int
    keys: int
    repeats: int
    folder: Path


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


def _repeat(job: Job, rank: int, barrier: Callable[[], object], step: Callable[[], None]) -> None:
    """Time the steps. Rank 0 writes the duration of each repeat after the warm-up, page faults and processor time."""
    times_s = list[float]()
    faults = 0
    cpu_s = 0.0
    for repeat in range(WARM_UP + job.repeats):
        if repeat == WARM_UP:
            faults = _faults()
            cpu_s = time.process_time()
        barrier()
        begin_s = time.perf_counter()
        step()
        times_s.append(time.perf_counter() - begin_s)
    moved_bytes = 2 * job.size_bytes * job.repeats
    found = {
        "times_s": times_s[WARM_UP:],
        "faults_per_mb": (_faults() - faults) / (moved_bytes / 1e6),
        "worker_cpu_s_per_gb": (time.process_time() - cpu_s) / (moved_bytes / 1e9),
    }
    if rank == 0:
        (job.folder / "peer.json").write_text(json.dumps(found), encoding="utf-8")


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def measure_socket(job: Job) -> Found:
    """Measure a TCP server without protocol, authentication and events: it receives, sums and sends bytes."""
    fork = multiprocessing.get_context("fork")
    listener = socket.create_server(("127.0.0.1", 0), backlog=job.workers)
    address = listener.getsockname()
    barrier = fork.Barrier(job.workers)
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
    ones = np.ones(job.size_bytes // 4, np.float32)
    total = np.empty(job.size_bytes // 4, np.float32)

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
    """Receive into, or send, all views completely, as their sockets become ready.

    portion  receives into or sends a view; returns the number of bytes
    """
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
