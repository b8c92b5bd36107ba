"""How workers find out which of them is at the other end of each connection that a library has opened."""

from __future__ import annotations

from typing import Any

import msgspec
import torch

from testbed.engine.collectives.collectives import Collectives
from testbed.execution.distributed.sockets import Ends, Place, connections


async def exchange(peers: Collectives, value: Any) -> list[Any]:
    """Return the value of every rank, by rank. Values must be JSON; tuples come back as lists."""
    text = torch.frombuffer(bytearray(msgspec.json.encode(value)), dtype=torch.uint8)
    return [msgspec.json.decode(bytes(part.tolist())) for part in await peers.all_gather(text)]


async def peers_of_connections(peers: Collectives, listener: Place) -> dict[Ends, str]:
    """The worker at the other end of each of the library's connections. ``listener``: where this worker's listens.

    A connection that this worker made is known by the listener at its other end; one that was accepted is known from
    the worker that made it.
    """
    listeners = [(str(host), int(port)) for host, port in await exchange(peers, listener)]
    others = [place for rank, place in enumerate(listeners) if rank != peers.rank]
    made = [counted.ends for counted in connections().values() if counted.ends[1] in others]
    theirs = {ends: peers.ranks[listeners.index(ends[1])] for ends in made}
    for name, found in zip(peers.ranks, await exchange(peers, made), strict=True):
        for mine, other in found:
            if tuple(other) == listener:
                theirs[listener, tuple(mine)] = name
    return theirs
