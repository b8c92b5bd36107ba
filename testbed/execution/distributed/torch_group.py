"""torch.distributed's process groups between the training workers of a run, awaited without blocking the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from testbed.engine.collectives.collectives import Collectives
from testbed.execution.distributed import sockets
from testbed.execution.distributed.meeting import peers_of_connections
from testbed.execution.distributed.process_group import InsideGroup
from testbed.execution.distributed.sockets import Meter
from testbed.placing import place_of
from testbed.plan.model import Plan
from testbed.realtime.world import RealWorld

_LIBRARY: Any = torch.distributed  # its stubs are incomplete


async def gloo_group(world: RealWorld, plan: Plan, peers: Collectives) -> InsideGroup:
    """Gloo over TCP between the workers' own addresses, each connected to each."""
    before = sockets.listening()
    device = _LIBRARY.ProcessGroupGloo.create_device(hostname=world.network.host_of(world.node))
    (listener,) = sockets.listening() - before
    store = await _store(world, plan, peers)
    timeout = timedelta(seconds=plan.timeouts.step_deadline_s)

    def make() -> Any:
        options = _LIBRARY.ProcessGroupGloo._Options()
        options._devices, options._threads, options._timeout = [device], 2, timeout
        return _LIBRARY.ProcessGroupGloo(store, peers.rank, peers.size, options)

    made = await asyncio.to_thread(make)
    return _Gloo(made, store, Meter(await peers_of_connections(peers, listener)))


async def nccl_group(world: RealWorld, plan: Plan, peers: Collectives) -> InsideGroup:
    """NCCL, one GPU per worker: that on which it computes or, if that is not its own, by rank on its machine."""
    store, device = await _store(world, plan, peers), _own_gpu(world, plan)
    make, options = _LIBRARY.ProcessGroupNCCL, _LIBRARY.ProcessGroupNCCL.Options()
    made = await asyncio.to_thread(make, store, peers.rank, peers.size, options)
    return _Nccl(made, store, device, peers.ranks, peers.rank)


def _own_gpu(world: RealWorld, plan: Plan) -> torch.device:
    here = [worker for worker in plan.training_workers if world.network.is_beside(worker.name)]
    places = [place_of(plan, worker) for worker in here]
    number = [worker.name for worker in here].index(world.node)
    distinct = len(set(places)) == len(places)
    return places[number] if distinct and places[number].type == "cuda" else torch.device("cuda", number)


async def _store(world: RealWorld, plan: Plan, peers: Collectives) -> Any:
    """The store of the rendezvous: at the first worker, on a port that the kernel chooses and a broadcast announces."""
    host = world.network.host_of(peers.ranks[0])
    timeout = timedelta(seconds=plan.timeouts.rendezvous_s)

    def make(port: int, first: bool) -> Any:
        return _LIBRARY.TCPStore(host, port, peers.size, first, timeout=timeout, wait_for_workers=False)

    port = torch.zeros(1, dtype=torch.int64)
    if peers.rank == 0:
        store = await asyncio.to_thread(make, 0, True)
        await peers.broadcast(port + store.port)
        return store
    return await asyncio.to_thread(make, int(await peers.broadcast(port)), False)


@dataclass(slots=True)
class _Gloo:
    group: Any
    store: Any  # referenced, as the group uses it
    meter: Meter

    def start(self, tensor: Tensor) -> asyncio.Future[None]:
        return _done(self.group.allreduce([tensor]))

    def start_reduce(self, tensor: Tensor) -> asyncio.Future[None]:
        return _done(self.group.reduce(tensor, 0))

    def start_broadcast(self, tensor: Tensor) -> asyncio.Future[None]:
        return _done(self.group.broadcast(tensor, 0))

    def start_reduce_scatter(self, part: Tensor, tensor: Tensor) -> asyncio.Future[None]:
        work = self.group._reduce_scatter_base(part, tensor)  # torch gives this one no future
        return asyncio.get_running_loop().run_in_executor(None, _waited, work)

    def start_all_gather(self, tensor: Tensor, part: Tensor) -> asyncio.Future[None]:
        return _done(self.group._allgather_base(tensor, part))

    def received_bytes(self) -> dict[str, int]:
        return self.meter.since_last()


@dataclass(slots=True)
class _Nccl:
    """NCCL says nothing of bytes, and between GPUs none cross a socket: those are counted that its rings must move."""

    group: Any
    store: Any
    device: torch.device
    ranks: tuple[str, ...]
    rank: int
    moved: dict[str, int] = field(default_factory=dict)

    def start(self, tensor: Tensor) -> asyncio.Future[None]:
        there = tensor.to(self.device)
        self._count(self.rank - 1, 2 * self._without_one(tensor))
        return self._finished(self.group.allreduce([there]), tensor, there)

    def start_reduce(self, tensor: Tensor) -> asyncio.Future[None]:
        there = tensor.to(self.device)
        if self.rank + 1 < len(self.ranks):
            self._count(self.rank + 1, tensor.nbytes)
        return self._finished(self.group.reduce(there, 0), tensor, there)

    def start_broadcast(self, tensor: Tensor) -> asyncio.Future[None]:
        there = tensor.to(self.device)
        if self.rank:
            self._count(self.rank - 1, tensor.nbytes)
        return self._finished(self.group.broadcast(there, 0), tensor, there)

    def start_reduce_scatter(self, part: Tensor, tensor: Tensor) -> asyncio.Future[None]:
        there = part.to(self.device)
        self._count(self.rank - 1, self._without_one(tensor))
        return self._finished(self.group._reduce_scatter_base(there, tensor.to(self.device)), part, there)

    def start_all_gather(self, tensor: Tensor, part: Tensor) -> asyncio.Future[None]:
        there = tensor.to(self.device)
        self._count(self.rank - 1, self._without_one(tensor))
        return self._finished(self.group._allgather_base(there, part.to(self.device)), tensor, there)

    def received_bytes(self) -> dict[str, int]:
        moved, self.moved = self.moved, {}
        return moved

    def _count(self, rank: int, size_bytes: int) -> None:
        name = self.ranks[rank % len(self.ranks)]
        self.moved[name] = self.moved.get(name, 0) + size_bytes

    def _without_one(self, tensor: Tensor) -> int:
        """Return the bytes of all parts of a tensor but one."""
        return tensor.nbytes * (len(self.ranks) - 1) // len(self.ranks)

    def _finished(self, work: Any, result: Tensor, there: Tensor) -> asyncio.Future[None]:
        return asyncio.get_running_loop().run_in_executor(None, self._finish, work, result, there)

    def _finish(self, work: Any, result: Tensor, there: Tensor) -> None:
        work.wait()
        if there is not result:
            result.copy_(there)
        torch.cuda.synchronize(self.device)  # ``wait`` only orders streams, and other threads have others


def _done(work: Any) -> asyncio.Future[None]:
    """Return what is set when an operation of Gloo is done."""
    loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
    future = work.get_future()
    future.add_done_callback(lambda ended: loop.call_soon_threadsafe(_settle, done, ended.wait))
    return done


def _waited(work: Any) -> None:
    work.wait()


def _settle(done: asyncio.Future[None], result: Callable[[], object]) -> None:
    if done.done():
        return
    try:
        result()
    except RuntimeError as error:
        done.set_exception(error)
    else:
        done.set_result(None)
