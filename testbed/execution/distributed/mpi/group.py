"""The workers of a run as the ranks of an MPI job, and their sums."""

from __future__ import annotations

import asyncio
import os
import secrets
import select
import socket
from typing import Any

import numpy as np
from torch import Tensor

from testbed.engine.collectives.collectives import Collectives
from testbed.errors import RunFailed
from testbed.execution.distributed import sockets
from testbed.execution.distributed.meeting import exchange, peers_of_connections
from testbed.execution.distributed.mpi.library import environment, forget_shared_memory, load_mpi, start
from testbed.execution.distributed.mpi.pmi import ProcessManager
from testbed.execution.distributed.mpi.progress import MpiProgress
from testbed.execution.distributed.process_group import ProcessGroup
from testbed.execution.distributed.sockets import Meter
from testbed.plan.model import Plan
from testbed.policy.collective.options import MPICH_ALGORITHMS, MpiOptions
from testbed.realtime.world import RealWorld

_STOP_S = 2.0  # that MPICH may take to its next request when another rank is lost: usually 10 ms


async def mpi_group(world: RealWorld, plan: Plan, peers: Collectives) -> ProcessGroup:
    """MPICH over TCP between the workers' own addresses. Raise ``RunFailed`` if a connection cannot be found."""
    mpi, progress, before = load_mpi(), MpiProgress(), sockets.listening()
    manager, requests = await _set_environment(world, plan, peers)
    limit_s = plan.timeouts.rendezvous_s
    started = progress.start(lambda: start(mpi))
    try:
        await world.wait(started, "the start of MPI", limit_s)
    finally:
        if not started.done():  # another rank is lost
            _stop(manager, requests)
        forget_shared_memory()
    progress.idle = mpi.COMM_WORLD.Iprobe
    listeners = sockets.listening() - before
    if len(listeners) != 1:
        raise RunFailed(f"MPI listens at {sorted(listeners) or 'no address'}; expected one address of {world.node}")
    await world.wait(_connect(mpi, progress), "MPI's first message from each worker", limit_s)
    connections = await peers_of_connections(peers, *listeners)
    silent = sorted(set(peers.ranks) - {world.node} - set(connections.values()))
    if silent:
        raise RunFailed(
            f"MPI has no TCP connection from {world.node} to {', '.join(silent)}, so its bytes could not be counted"
        )
    progress.listen_to(number for number, found in sockets.connections().items() if found.ends in connections)
    return _Mpi(mpi, progress, Meter(connections))


async def _set_environment(world: RealWorld, plan: Plan, peers: Collectives) -> tuple[ProcessManager, int]:
    """Set the environment in which MPICH starts: rank, size, and a process manager for the start.

    Return the manager, and a descriptor of the socket at which it gets requests.
    """

    async def exchange_keys(put: dict[str, str]) -> list[dict[str, str]]:
        forget_shared_memory()
        return await exchange(peers, put)

    name = (await exchange(peers, f"testbed-{secrets.token_hex(8)}"))[0]
    ours, theirs = socket.socketpair()
    requests = os.dup(ours.fileno())  # stays open: MPICH would crash at its end, when another rank is lost
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    manager = ProcessManager(peers.size, name, exchange_keys)
    world.spawn(manager.serve(reader, writer), "MPI's process manager")
    options = MpiOptions(**plan.technique.paradigm.options) if plan.technique.paradigm.kind == "mpi" else MpiOptions()
    address = world.network.host_of(world.node)
    for variable in [variable for variable in os.environ if variable.startswith(("PMI_", "PMIX_"))]:
        del os.environ[variable]  # from an mpirun or a batch system around this run
    algorithm = MPICH_ALGORITHMS[options.algorithm]
    os.environ.update(environment(peers.rank, peers.size, theirs.detach(), address, algorithm))
    return manager, requests


def _stop(manager: ProcessManager, requests: int) -> None:
    """Return when MPICH waits for an answer of its process manager, which has none while this blocks.

    Until then it may make its shared memory. ``requests``: a descriptor at which its next one can be seen.
    """
    if not manager.at_barrier:
        poll = select.poll()
        poll.register(requests, select.POLLIN)
        poll.poll(_STOP_S * 1e3)


def _connect(mpi: Any, progress: MpiProgress) -> asyncio.Future[None]:
    """Make all connections before bytes are counted. MPICH connects at a first message, so each sends one to all."""
    size = mpi.COMM_WORLD.Get_size()
    out, back = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    progress.start(lambda: mpi.COMM_WORLD.Ialltoall(out, back))
    return progress.start(mpi.COMM_WORLD.Ibarrier)


class _Mpi:
    def __init__(self, mpi: Any, progress: MpiProgress, meter: Meter) -> None:
        self._mpi, self._progress, self._meter = mpi, progress, meter

    def start(self, tensor: Tensor) -> asyncio.Future[None]:
        values, mpi = tensor.numpy(), self._mpi  # a view, not a copy
        return self._progress.start(lambda: mpi.COMM_WORLD.Iallreduce(mpi.IN_PLACE, values, mpi.SUM))

    def received_bytes(self) -> dict[str, int]:
        return self._meter.since_last()
