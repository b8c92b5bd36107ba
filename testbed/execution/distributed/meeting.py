"""A library's process group, and how workers find out which worker is at the other end of each of its connections."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor

from testbed.engine.collectives.collectives import Collectives
from testbed.execution.distributed import sockets
from testbed.execution.distributed.sockets import Ends, Place


class ProcessGroup(Protocol):
    """The workers that sum together. All start the same sums in the same order."""

    def start(self, tensor: Tensor) -> asyncio.Future[None]:
        """Begin to sum ``tensor`` in place over all workers; the future is done when the sum is."""

    def received_bytes(self) -> dict[str, int]:
        """Return the bytes received from each other worker since the last call."""


class InsideGroup(ProcessGroup, Protocol):
    """Workers of a data centre, with more operations; see ``start``."""

    def start_reduce(self, tensor: Tensor) -> asyncio.Future[None]:
        """Begin to sum ``tensor`` at the first worker, in place; at others its content is lost."""

    def start_broadcast(self, tensor: Tensor) -> asyncio.Future[None]:
        """Begin to copy the first worker's ``tensor`` to the others', in place."""

    def start_reduce_scatter(self, part: Tensor, tensor: Tensor) -> asyncio.Future[None]:
        """Begin to sum ``tensor``, of which each worker gets one ``part``, all of one size."""

    def start_all_gather(self, tensor: Tensor, part: Tensor) -> asyncio.Future[None]:
        """Begin to join all workers' ``part`` in ``tensor``."""


async def exchange(peers: Collectives, value: Any) -> list[Any]:
    """Return the value of every rank, by rank. Values must be JSON; lists come back as tuples."""
    text = torch.frombuffer(bytearray(msgspec.json.encode(value)), dtype=torch.uint8)
    return [_tuples(msgspec.json.decode(bytes(part.tolist()))) for part in await peers.all_gather(text)]


async def peers_of_connections(peers: Collectives, listener: Place) -> dict[Ends, str]:
    """The worker at the other end of each of the library's connections. ``listener``: where this worker's listens.

    A connection that this worker made is known by the listener at its other end; one that was accepted is known from
    the worker that made it.
    """
    listeners = [(str(host), int(port)) for host, port in await exchange(peers, listener)]
    made = sockets.to_listeners([place for rank, place in enumerate(listeners) if rank != peers.rank])
    theirs = {ends: peers.ranks[listeners.index(ends[1])] for ends in made}
    for name, others in zip(peers.ranks, await exchange(peers, made), strict=True):
        for mine, other in others:
            if other == listener:
                theirs[other, mine] = name
    return theirs


def _tuples(value: Any) -> Any:
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value
