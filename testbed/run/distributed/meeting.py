"""What workers tell each other of a library's connections: where each of them listens, and whose is which."""

from __future__ import annotations

from typing import Any

import msgspec
import torch

from testbed.engine.collectives.collectives import Collectives
from testbed.run.distributed import sockets
from testbed.run.distributed.sockets import Ends, Place

LOOPBACK = "127.0.0.1"


async def told(peers: Collectives, what: Any) -> list[Any]:
    """What every rank tells, by rank. Lists come back as tuples."""
    text = torch.frombuffer(bytearray(msgspec.json.encode(what)), dtype=torch.uint8)
    return [_tuples(msgspec.json.decode(bytes(part.tolist()))) for part in await peers.all_gather(text)]


async def whose(peers: Collectives, listener: Place) -> dict[Ends, str]:
    """The worker at the other end of each of the library's connections. All tell all which ones they have made."""
    listeners = [(str(host), int(port)) for host, port in await told(peers, listener)]
    made = sockets.to_listeners([place for rank, place in enumerate(listeners) if rank != peers.rank])
    theirs = {ends: peers.ranks[listeners.index(ends[1])] for ends in made}
    for name, others in zip(peers.ranks, await told(peers, made), strict=True):
        for mine, other in others:
            if other == listener:
                theirs[other, mine] = name
    return theirs


def _tuples(value: Any) -> Any:
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value
