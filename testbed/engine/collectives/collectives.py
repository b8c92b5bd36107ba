"""Collective operations among named nodes, with the names that MPI and torch.distributed use.

All ranks call the same operations in the same order. A call takes its number at once and returns a coroutine, so that
operations may overlap (``world.spawn``). Tensors are flat. The caller must not change an operation's input any more,
because other ranks may still have to read it when this rank's part is done. Results are in memory of their own. Sums
are taken in the order that the algorithm's module states, whatever arrives first: equal inputs give equal bits at every
rank, in every world, in every run.

``flag``: one bit that travels in the headers, without a message of its own. A rank that has a result has received,
directly or not, from every rank that the result depends on, and so knows whether one of them raised its flag.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from torch import Tensor

from testbed.codec.base import Codec
from testbed.engine.collectives.buffers import Flat, Parcels, Parts
from testbed.engine.collectives.operation import CollectiveMail, Operation, Tag
from testbed.policy.collective import Algorithm
from testbed.policy.collective.all_to_all import all_to_all
from testbed.policy.collective.ring import all_gather, all_gather_direct, reduce_scatter, ring
from testbed.policy.collective.rooted import gather, scatter
from testbed.policy.collective.schedule import GroupShape, Schedule
from testbed.policy.collective.tree import broadcast, chain_broadcast, chain_reduce
from testbed.world import World

T = TypeVar("T")
Call = Coroutine[Any, Any, T]


class Collectives:
    """This node's view of a group of ranks. ``codec``: see ``operation.Flat``; it is used wherever tensors are added.

    ``shape`` (default: all ranks in one group, unsegmented) says which ranks are near each other. ``name`` tells
    groups apart that share a node's mail. ``round`` and ``priority`` mark the messages of calls to come, which cut
    tensors into the ``segments`` of ``shape``. Calls raise ``MembershipChanged`` when the membership has changed since
    the group was made.
    """

    def __init__(
        self,
        world: World,
        mail: CollectiveMail,
        ranks: Sequence[str],
        codec: Codec | None = None,
        *,
        shape: GroupShape | None = None,
        name: str = "all",
    ) -> None:
        self._world = world
        self._mail = mail
        self._codec = codec
        self._name = name
        self.ranks = tuple(ranks)
        self.rank = self.ranks.index(world.node)
        self.size = len(self.ranks)
        self.shape = shape or GroupShape(self.size)
        self._schedules: dict[tuple[Algorithm, int], Schedule] = {}  # by segments
        self._operations = self.round = self.priority = 0
        self._company = mail.company

    def all_reduce(self, tensor: Tensor, algorithm: Algorithm = ring) -> Call[Tensor]:
        """Return the sum of all ranks' tensors, with the same bits at every rank."""
        return _first(self.all_reduce_flagged(tensor, False, algorithm))

    def all_reduce_flagged(self, tensor: Tensor, flag: bool, algorithm: Algorithm = ring) -> Call[tuple[Tensor, bool]]:
        """Return the result of ``all_reduce``, and whether any rank raised its flag (if there is any element)."""
        key = algorithm, self.shape.segments
        if key not in self._schedules:
            self._schedules[key] = algorithm(self.shape, self.rank)
        return self._summed(self._next(flag), tensor, self._schedules[key])

    def reduce_scatter(self, tensor: Tensor, flag: bool = False) -> Call[tuple[Tensor, bool]]:
        """Return elements ``parts_of(n)[rank]`` of the sum, in ring order, and whether a rank raised its flag.

        Without any elements, the flag is this rank's own.
        """
        schedule = reduce_scatter(self.rank, self.size)
        return self._summed(self._next(flag), tensor, schedule, (self.rank, self.rank + 1))

    def parts_of(self, elements: int) -> list[tuple[int, int]]:
        """Return the first element and the end of each rank's part of a tensor, as in ``reduce_scatter``."""
        cuts = [elements * rank // self.size for rank in range(self.size + 1)]
        return list(pairwise(cuts))

    def reduce(self, tensor: Tensor) -> Call[Tensor]:
        """Return the sum of all ranks' tensors at the first rank, along a chain; elsewhere ``tensor`` itself."""
        schedule = chain_reduce(self.rank, self.size, self.shape.segments)
        operation = self._next()
        buffer = Flat(self._world, tensor, schedule.bounds(tensor.numel()), self._codec, self.round)

        async def total() -> Tensor:
            await operation.run(schedule, buffer)
            return tensor if self.rank else await buffer.result()

        return total()

    def broadcast(self, tensor: Tensor) -> Call[Tensor]:
        """Return the first rank's tensor, exactly (no codec). Elsewhere ``tensor`` only gives size and type."""
        return self._broadcast(tensor, broadcast(self.rank, self.size, self.shape.segments))

    def chain_broadcast(self, tensor: Tensor) -> Call[Tensor]:
        """Return the first rank's tensor like ``broadcast``, but along a chain: no rank sends it twice."""
        return self._broadcast(tensor, chain_broadcast(self.rank, self.size, self.shape.segments))

    def broadcast_parts(self, parts: Parts) -> Call[Parts]:
        """Return the first rank's parcel; other ranks need not know its size."""
        operation = self._next()
        buffer = Parcels({0: parts})

        async def parcel() -> Parts:
            await operation.run(broadcast(self.rank, self.size), buffer)
            return buffer.parcels[0]

        return parcel()

    def gather(self, tensor: Tensor) -> Call[list[Tensor]]:
        """Return every rank's tensor at the first rank, by rank; elsewhere nothing. Sizes and types may differ."""
        operation = self._next()
        buffer = Parcels({self.rank: (tensor,)})

        async def tensors() -> list[Tensor]:
            await operation.run(gather(self.rank, self.size), buffer)
            return [] if self.rank else [buffer.parcels[rank][0] for rank in range(self.size)]

        return tensors()

    def scatter(self, tensors: Sequence[Tensor] = ()) -> Call[Tensor]:
        """Return this rank's tensor; only the first rank passes ``tensors``, one for each rank."""
        operation = self._next()
        buffer = Parcels({rank: (tensor,) for rank, tensor in enumerate(tensors)})

        async def mine() -> Tensor:
            await operation.run(scatter(self.rank, self.size), buffer)
            return buffer.parcels[self.rank][0]

        return mine()

    def all_to_all(self, tensors: Sequence[Tensor]) -> Call[list[Tensor]]:
        """Return the tensors that all ranks send to this one, by rank. ``tensors``: one for each rank, of any size."""
        operation = self._next()
        buffer = Parcels({rank: (tensor,) for rank, tensor in enumerate(tensors)})

        async def mine() -> list[Tensor]:
            await operation.run(all_to_all(self.rank, self.size), buffer)
            buffer.parcels[self.size + self.rank] = buffer.parcels[self.rank]
            return [buffer.parcels[self.size + rank][0] for rank in range(self.size)]

        return mine()

    def all_gather(self, tensor: Tensor) -> Call[list[Tensor]]:
        """Return every rank's tensor, by rank; sizes and types may differ."""

        async def tensors(gathering: Call[tuple[list[Parts], bool]]) -> list[Tensor]:
            return [parts[0] for parts in (await gathering)[0]]

        return tensors(self.all_gather_parts((tensor,)))

    def all_gather_parts(
        self, parts: Parts, *, direct: bool = False, flag: bool = False
    ) -> Call[tuple[list[Parts], bool]]:
        """Return every rank's parcel, by rank, and whether a rank raised its flag.

        Parcels go around the ring, or (``direct``) from each rank to each other in one message.
        """
        choose = all_gather_direct if direct else all_gather
        operation = self._next(flag)
        buffer = Parcels({self.rank: parts})

        async def gathered() -> tuple[list[Parts], bool]:
            await operation.run(choose(self.rank, self.size), buffer)
            return [buffer.parcels[rank] for rank in range(self.size)], operation.flag

        return gathered()

    def _next(self, flag: bool = False) -> Operation:
        tag = Tag(self._name, self._operations, 0)
        self._operations += 1
        group = self.ranks, self._company
        return Operation(self._world, self._mail, group, tag, self.round, self.priority, flag)

    def _broadcast(self, tensor: Tensor, schedule: Schedule) -> Call[Tensor]:
        buffer = Flat(self._world, tensor, schedule.bounds(tensor.numel()), None, self.round)
        running = self._next().run(schedule, buffer)

        async def value() -> Tensor:
            await running
            return await buffer.result()

        return value()

    async def _summed(
        self, operation: Operation, tensor: Tensor, schedule: Schedule, wanted: tuple[int, int | None] = (0, None)
    ) -> tuple[Tensor, bool]:
        """Return the chunks ``wanted`` of the sum, and whether a rank raised its flag."""
        buffer = Flat(self._world, tensor, schedule.bounds(tensor.numel()), self._codec, operation.round)
        await operation.run(schedule, buffer)
        return await buffer.result(*wanted), operation.flag


async def _first(pair: Call[tuple[T, bool]]) -> T:
    return (await pair)[0]
