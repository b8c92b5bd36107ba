"""torch.distributed's process groups between the training workers of a run, awaited without blocking the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import msgspec
import torch
import torch.distributed
from torch import Tensor

from testbed.engine.collectives.collectives import Collectives
from testbed.execution.devices import require_per_worker
from testbed.execution.distributed import sockets
from testbed.execution.distributed.sockets import Ends, Meter, Place
from testbed.paradigms import library_of
from testbed.placing import place_of
from testbed.plan.model import Plan
from testbed.policy.collective.options import NCCL
from testbed.realtime.world import RealWorld

_LIBRARY: Any = torch.distributed  # its stubs are incomplete


def require(plan: Plan, nodes: Collection[str] | None = None) -> None:
    """Raise ``CapabilityError`` if the plan's library needs GPUs that this machine lacks.

    ``nodes``: the nodes of this machine, by default all.
    """
    paradigm = plan.technique.paradigm
    if library_of(paradigm.kind, paradigm.options) == NCCL:
        here = [worker for worker in plan.training_workers if nodes is None or worker.name in nodes]
        require_per_worker(len(here), "paradigm.inside" if "inside" in paradigm.options else "paradigm.backend")


async def make_group(world: RealWorld, plan: Plan, peers: Collectives, library: str) -> Group:
    """Make a group of ``peers`` with ``library``; to be called by each of the peers."""
    return await _GROUPS[library](world, plan, peers)


async def _gloo_group(world: RealWorld, plan: Plan, peers: Collectives) -> Group:
    """Make a Gloo group over TCP, with connections between the addresses of all pairs of workers."""
    before = sockets.listening()
    device = _LIBRARY.ProcessGroupGloo.create_device(hostname=world.network.host_of(world.node))
    (listener,) = sockets.listening() - before
    store = await _store(world, plan, peers)
    timeout = timedelta(seconds=plan.timeouts.step_deadline_s)

    def make() -> Any:
        options = _LIBRARY.ProcessGroupGloo._Options()
        options._devices = [device]
        options._threads = 2
        options._timeout = timeout
        return _LIBRARY.ProcessGroupGloo(store, peers.rank, peers.size, options)

    made = await asyncio.to_thread(make)
    meter = Meter(await _peers_of_connections(peers, listener))
    return Gloo(made, store, torch.device("cpu"), peers.ranks, peers.rank, meter)


async def _nccl_group(world: RealWorld, plan: Plan, peers: Collectives) -> Group:
    """Make an NCCL group with one GPU per worker: the GPU on which the worker computes or, if workers of the machine
    share GPUs, the GPU with the worker's number among them.
    """
    store = await _store(world, plan, peers)
    device = _own_gpu(world, plan)
    make = _LIBRARY.ProcessGroupNCCL
    options = _LIBRARY.ProcessGroupNCCL.Options()
    made = await asyncio.to_thread(make, store, peers.rank, peers.size, options)
    return Nccl(made, store, device, peers.ranks, peers.rank)


_GROUPS: dict[str, Callable[[RealWorld, Plan, Collectives], Awaitable[Group]]] = {
    "gloo": _gloo_group,
    NCCL: _nccl_group,
}


@dataclass(slots=True)
class Group:
    """Workers that sum together. All must start the same operations in the same order.

    Each operation returns a future that ends with it. ``store``: the store of the rendezvous, kept because the library
    uses it. ``device``: the device on which the library needs tensors.
    """

    group: Any
    store: Any
    device: torch.device
    ranks: tuple[str, ...]
    rank: int

    on_gpu: ClassVar[bool] = False

    def start(self, tensor: Tensor) -> asyncio.Future[None]:
        """Begin to sum ``tensor`` in place over all workers."""
        there = tensor.to(self.device)
        self._count(self.rank - 1, 2 * self._without_one(tensor))
        return self._finished(self.group.allreduce([there]), tensor, there)

    def start_reduce(self, tensor: Tensor) -> asyncio.Future[None]:
        """Begin to sum ``tensor`` in place at the first worker; at the others its content is lost."""
        there = tensor.to(self.device)
        if self.rank + 1 < len(self.ranks):
            self._count(self.rank + 1, tensor.nbytes)
        return self._finished(self.group.reduce(there, 0), tensor, there)

    def start_broadcast(self, tensor: Tensor) -> asyncio.Future[None]:
        """Begin to copy the first worker's ``tensor`` into the ``tensor`` of each other worker."""
        there = tensor.to(self.device)
        if self.rank:
            self._count(self.rank - 1, tensor.nbytes)
        return self._finished(self.group.broadcast(there, 0), tensor, there)

    def start_reduce_scatter(self, part: Tensor, tensor: Tensor) -> asyncio.Future[None]:
        """Begin to sum ``tensor``; each worker gets one ``part`` of the sum, all of equal size."""
        there = part.to(self.device)
        self._count(self.rank - 1, self._without_one(tensor))
        return self._finished(self.group._reduce_scatter_base(there, tensor.to(self.device)), part, there)

    def start_all_gather(self, tensor: Tensor, part: Tensor) -> asyncio.Future[None]:
        """Begin to concatenate the ``part`` of each worker, by rank, into ``tensor``."""
        there = tensor.to(self.device)
        self._count(self.rank - 1, self._without_one(tensor))
        return self._finished(self.group._allgather_base(there, part.to(self.device)), tensor, there)

    def received_bytes(self) -> dict[str, int]:
        """Return the bytes received from each other worker since the last call."""
        raise NotImplementedError

    def _count(self, rank: int, size_bytes: int) -> None:
        """Count bytes that the library's ring moves from ``rank`` to this worker in an operation that begins."""

    def _without_one(self, tensor: Tensor) -> int:
        """Return the size of a tensor without one worker's part, in bytes."""
        return tensor.nbytes * (len(self.ranks) - 1) // len(self.ranks)

    def _finished(self, work: Any, result: Tensor, there: Tensor) -> asyncio.Future[None]:
        """Return a future that ends when ``work`` is done and its result ``there`` has been copied to ``result``."""
        raise NotImplementedError


@dataclass(slots=True)
class Gloo(Group):
    """Gloo on main memory. Its bytes are counted by the kernel on its connections, including Gloo's headers."""

    meter: Meter

    def start_reduce_scatter(self, part: Tensor, tensor: Tensor) -> asyncio.Future[None]:
        work = self.group._reduce_scatter_base(part, tensor)  # torch gives this one no future
        return asyncio.get_running_loop().run_in_executor(None, _waited, work)

    def received_bytes(self) -> dict[str, int]:
        return self.meter.since_last()

    def _finished(self, work: Any, result: Tensor, there: Tensor) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        work.get_future().add_done_callback(lambda ended: loop.call_soon_threadsafe(_settle, done, ended.wait))
        return done


@dataclass(slots=True)
class Nccl(Group):
    """NCCL, which reports no bytes and uses no sockets between GPUs: the bytes that its rings must move are counted."""

    moved: dict[str, int] = field(default_factory=dict)

    on_gpu: ClassVar[bool] = True

    def received_bytes(self) -> dict[str, int]:
        moved, self.moved = self.moved, {}
        return moved

    def _count(self, rank: int, size_bytes: int) -> None:
        name = self.ranks[rank % len(self.ranks)]
        self.moved[name] = self.moved.get(name, 0) + size_bytes

    def _finished(self, work: Any, result: Tensor, there: Tensor) -> asyncio.Future[None]:
        return asyncio.get_running_loop().run_in_executor(None, self._finish, work, result, there)

    def _finish(self, work: Any, result: Tensor, there: Tensor) -> None:
        work.wait()
        if there is not result:
            result.copy_(there)
        torch.cuda.synchronize(self.device)  # ``wait`` only orders streams of this thread; other threads have others


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


def _own_gpu(world: RealWorld, plan: Plan) -> torch.device:
    here = [worker for worker in plan.training_workers if world.network.is_beside(worker.name)]
    places = [place_of(plan, worker) for worker in here]
    number = [worker.name for worker in here].index(world.node)
    distinct = len(set(places)) == len(places)
    return places[number] if distinct and places[number].type == "cuda" else torch.device("cuda", number)


async def _store(world: RealWorld, plan: Plan, peers: Collectives) -> Any:
    """Return the store of the rendezvous. The first worker has it, and broadcasts the port that the kernel chose."""
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


async def _peers_of_connections(peers: Collectives, listener: Place) -> dict[Ends, str]:
    """Return the worker at the other end of each Gloo connection. ``listener``: where this worker's Gloo listens.

    If this worker opened a connection, the address of the listener identifies the other worker. If this worker accepted
    it, the other worker reports it.
    """
    listeners = [(str(host), int(port)) for host, port in await _exchange(peers, listener)]
    others = [place for rank, place in enumerate(listeners) if rank != peers.rank]
    made = [counted.ends for counted in sockets.connections().values() if counted.ends[1] in others]
    theirs = {ends: peers.ranks[listeners.index(ends[1])] for ends in made}
    for name, found in zip(peers.ranks, await _exchange(peers, made), strict=True):
        for mine, other in found:
            if tuple(other) == listener:
                theirs[listener, tuple(mine)] = name
    return theirs


async def _exchange(peers: Collectives, value: Any) -> list[Any]:
    """Return the value of every rank, by rank. Values must be JSON; tuples come back as lists."""
    text = torch.frombuffer(bytearray(msgspec.json.encode(value)), dtype=torch.uint8)
    return [msgspec.json.decode(bytes(part.tolist())) for part in await peers.all_gather(text)]
