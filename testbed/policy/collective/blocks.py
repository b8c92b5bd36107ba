"""Binary blocks all-reduce (Rabenseifner, 2004): for numbers of ranks that are no power of two.

The ranks form blocks of powers of two, the binary digits of p, largest first. Each block halves by itself; then the
sums go from the smallest block to the next larger one, and so on, until the largest has them all; the results come
back the same way, and each block doubles. Order of a sum: within a block as the butterfly, then plus the sum of all
smaller blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.policy.collective.butterfly import doubling, halving
from testbed.policy.collective.schedule import (
    GroupShape,
    RankTransfer,
    Schedule,
    ScheduleStep,
    Steps,
    even_cuts,
    placed,
    segmented,
)


@dataclass(frozen=True, slots=True)
class Block:
    """Ranks ``first`` to ``first + size``."""

    first: int
    size: int

    def members(self) -> range:
        return range(self.first, self.first + self.size)


def blocks_of(size: int) -> tuple[Block, ...]:
    """The blocks of ``size`` ranks, largest first."""
    blocks, first = [], 0
    for digit in reversed(range(size.bit_length())):
        if size >> digit & 1:
            blocks.append(Block(first, 1 << digit))
            first += 1 << digit
    return tuple(blocks)


def binary_blocks(shape: GroupShape, rank: int) -> Schedule:
    """See the module."""
    blocks = blocks_of(shape.size)
    chunks = blocks[0].size
    index = next(i for i, block in enumerate(blocks) if rank in block.members())
    block, local = blocks[index], rank - blocks[index].first
    width = chunks // block.size
    ranges = [(i * width, (i + 1) * width) for i in range(block.size)]
    steps: list[ScheduleStep] = list(placed(halving(local, block.size), block.members(), ranges))
    smaller = _neighbours(blocks[index + 1], local, block, chunks) if index + 1 < len(blocks) else ()
    larger = _neighbours(blocks[index - 1], local, block, chunks) if index else ()
    steps += _exchange(smaller, larger)
    steps += placed(doubling(local, block.size), block.members(), ranges)
    return segmented(Schedule(even_cuts(chunks), (tuple(steps),)), shape.segments)


def _neighbours(other: Block, local: int, block: Block, chunks: int) -> tuple[tuple[int, int, int], ...]:
    """Ranks of ``other`` whose chunks overlap with those of rank ``local`` of ``block``, and the chunks in common."""
    narrow = chunks // max(other.size, block.size)
    many = max(1, other.size // block.size)
    first = local * other.size // block.size
    start = local * (chunks // block.size)
    return tuple((other.first + first + i, start + i * narrow, start + (i + 1) * narrow) for i in range(many))


def _exchange(smaller: tuple[tuple[int, int, int], ...], larger: tuple[tuple[int, int, int], ...]) -> Steps:
    """Take the smaller block's sums, pass one's own to the larger block, take its results, pass them back."""
    up_in = tuple(RankTransfer(*piece, True) for piece in smaller)
    up_out = tuple(RankTransfer(*piece, True) for piece in larger)
    down_in = tuple(RankTransfer(*piece) for piece in larger)
    down_out = tuple(RankTransfer(*piece) for piece in smaller)
    steps = (
        ScheduleStep(receives=up_in),
        ScheduleStep(sends=up_out),
        ScheduleStep(receives=down_in),
        ScheduleStep(sends=down_out),
    )
    return tuple(step for step in steps if step != ScheduleStep())
