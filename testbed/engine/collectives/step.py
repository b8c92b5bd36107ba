"""The optimizer step after gradients are summed: done by every worker, or shared between them (see ``policy…shares``).

All workers end with the same bits: norms are sums of squares in double precision, added in rank order, and each element
is updated by one worker, or by all in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import ClassVar

import torch
from torch import Tensor

from testbed.engine import coding
from testbed.engine.collectives.collectives import Collectives
from testbed.engine.local_work import optimizer_work
from testbed.key_shape import KeyShape
from testbed.policy.collective.shares import NORM_READS, UPDATE_READS, Piece, Shares
from testbed.settings.job import Choice
from testbed.state import Remembering
from testbed.training.optimizers import KeyOptimizer, Norms, clipped
from testbed.training.options import OPTIMIZERS
from testbed.world import Work, World


class OptimizerStep(Remembering, ABC):
    """Makes the optimizer's steps. ``_optimizers``: one for each key, or piece of a key, that this worker updates."""

    remembers: ClassVar[tuple[str, ...]] = ("_optimizers",)

    _optimizers: Sequence[KeyOptimizer]

    @abstractmethod
    async def __call__(self, world: World, round_: int, gradients: Mapping[int, Tensor]) -> list[Tensor]:
        """Make a round's step with the summed gradients of all or some keys; return the values of all keys."""

    @abstractmethod
    def values(self) -> list[Tensor]:
        """Return the values of all keys after the last step. The next step may change them in place."""

    @abstractmethod
    def load(self, values: Sequence[Tensor]) -> None:
        """Continue from these values; momentum and moments stay."""


class WholeStep(OptimizerStep):
    """Every worker makes the whole step. ``workers``: how many workers' gradients are summed."""

    def __init__(self, optimizer: Choice, values: Sequence[Tensor], workers: int, shapes: Sequence[KeyShape]) -> None:
        self._workers = workers
        self._optimizers = [
            KeyOptimizer(optimizer.kind, optimizer.options, value, shape)
            for value, shape in zip(values, shapes, strict=True)
        ]

    async def __call__(self, world: World, round_: int, gradients: Mapping[int, Tensor]) -> list[Tensor]:
        def step() -> None:
            optimizers = [self._optimizers[key] for key in gradients]
            for one, gradient in zip(
                optimizers, clipped(optimizers, [*gradients.values()], self._workers), strict=True
            ):
                one.step(gradient)

        await world.compute(optimizer_work([self._optimizers[key] for key in gradients], round_), step)
        return self.values()

    def values(self) -> list[Tensor]:
        return [key.value for key in self._optimizers]

    def load(self, values: Sequence[Tensor]) -> None:
        for key, value in zip(self._optimizers, values, strict=True):
            key.value.copy_(value)


class SharedStep(OptimizerStep):
    """Each worker computes the norms of its share. It updates only its share (``updates``), or all keys."""

    remembers = ("_optimizers", "_values")

    def __init__(
        self,
        optimizer: Choice,
        values: Sequence[Tensor],
        group: Collectives,
        shares: Shares,
        *,
        updates: bool,
        workers: int,
    ) -> None:
        self._workers = workers
        self._group = group
        self._shares = shares
        self._updates = updates
        self._sizes = [value.numel() for value in values]
        self._norms = OPTIMIZERS[optimizer.kind].by_norms
        self._reads = UPDATE_READS + (NORM_READS if self._norms else 0)
        self._adapt_from = optimizer.options.get("adapt_from", 0)
        everything = tuple(Piece(key, 0, size) for key, size in enumerate(self._sizes))
        self._mine = shares[group.rank]
        self._stepped = self._mine if updates else everything

        def make(pieces: Sequence[Piece]) -> list[KeyOptimizer]:
            cut = [values[piece.key][piece.start : piece.stop] for piece in pieces]
            return [KeyOptimizer(optimizer.kind, optimizer.options, value) for value in cut]

        self._optimizers = make(self._stepped)
        self._values = list(values) if updates else []  # values of all keys, if this worker updates only its share

    def values(self) -> list[Tensor]:
        return self._values if self._updates else [one.value for one in self._optimizers]

    def load(self, values: Sequence[Tensor]) -> None:
        if self._updates:
            self._values = list(values)
        for one, piece in zip(self._optimizers, self._stepped, strict=True):
            one.value.copy_(values[piece.key][piece.start : piece.stop])

    async def __call__(self, world: World, round_: int, gradients: Mapping[int, Tensor]) -> list[Tensor]:
        self._group.round = round_
        shortened = clipped(self._optimizers, [*gradients.values()], self._workers)
        gradients = dict(zip(gradients, shortened, strict=True))
        norms = await self._gather_norms(world, round_, gradients) if self._norms else None

        def step() -> None:
            for one, piece in zip(self._optimizers, self._stepped, strict=True):
                gradient = gradients[piece.key][piece.start : piece.stop]
                one.step(gradient, norms=norms[piece.key] if norms else None)

        await world.compute(self._work(round_, self._stepped, UPDATE_READS), step)
        if self._updates:
            self._values = await self._gather_values(world)
        return self.values()

    async def _gather_norms(self, world: World, round_: int, gradients: Mapping[int, Tensor]) -> list[Norms]:
        """Return the norms of whole tensors, from the sums of squares of all workers' pieces."""
        work = self._work(round_, self._mine, NORM_READS)
        squares = await world.compute(work, lambda: self._squares(gradients))
        total = torch.zeros_like(squares)
        for part in await self._group.all_gather(squares):
            total += part
        if total.is_meta:
            return [Norms(1.0, 1.0)] * len(self._sizes)
        roots = [Norms(sqrt(value), sqrt(gradient)) for value, gradient in total.tolist()]
        # LARS must not adapt to small tensors, but its optimizer only sees a piece: norms of 0 prevent the adaptation
        return [
            norm if size >= self._adapt_from else Norms(0.0, 0.0) for size, norm in zip(self._sizes, roots, strict=True)
        ]

    def _work(self, round_: int, pieces: Sequence[Piece], reads: int) -> Work:
        """Return the work on ``pieces`` with ``reads`` of the reads of each element that make up a whole step."""
        elements = sum(piece.size for piece in pieces)
        return optimizer_work(self._optimizers, round_, round(elements * reads / self._reads))

    def _squares(self, gradients: Mapping[int, Tensor]) -> Tensor:
        """Return the sums of squares of this worker's pieces of values and gradients: float64 [keys, 2]."""
        if gradients[0].is_meta:
            return torch.zeros(len(self._sizes), 2, dtype=torch.float64, device="meta")
        squares = torch.zeros(len(self._sizes), 2, dtype=torch.float64)
        optimizers = dict(zip(self._stepped, self._optimizers, strict=True))
        for piece in self._mine:
            gradient = gradients[piece.key][piece.start : piece.stop]
            whole = Piece(piece.key, 0, self._sizes[piece.key])
            one = optimizers[piece if self._updates else whole]
            norms = one.norms(gradient, 0 if self._updates else piece.start)
            squares[piece.key] += torch.tensor([norms.value**2, norms.gradient**2], dtype=torch.float64)
        return squares

    async def _gather_values(self, world: World) -> list[Tensor]:
        """Gather all workers' new pieces; return the new values of all keys."""
        new = torch.cat([one.value for one in self._optimizers] or [torch.zeros(0)])
        values = [torch.empty_like(value) for value in self._values]
        gathered = await self._group.all_gather(await coding.exact(world, new))
        for share, part in zip(self._shares, gathered, strict=True):
            for piece, value in zip(share, torch.split(part, [piece.size for piece in share]), strict=True):
                values[piece.key][piece.start : piece.stop] = value
        return values
