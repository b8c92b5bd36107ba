"""Butterfly all-reduce: recursive halving, then recursive doubling (Thakur, Rabenseifner and Gropp, 2005).

Order of a sum, if p is a power of two: ranks p / 2 apart are added first, then those p / 4 apart, and so on. Otherwise,
with r = p − 2^⌊log2 p⌋, each odd rank below 2 r first adds the contribution of its left neighbour, which then rests.
"""

from __future__ import annotations

from collections.abc import Callable

from testbed.policy.collective.schedule import (
    GroupShape,
    RankTransfer,
    Schedule,
    ScheduleStep,
    Steps,
    busy,
    even_cuts,
    exchange,
    placed,
    receiving,
    repeated,
    sending,
)


def halving(rank: int, size: int) -> Steps:
    """Cut into ``size`` chunks, a power of two; rank r ends with the sum of chunk r. Most distant partners first."""
    low = 0
    high = size
    steps = []
    while high - low > 1:
        middle = (low + high) // 2
        partner = rank ^ (middle - low)
        mine, theirs = ((low, middle), (middle, high)) if rank < middle else ((middle, high), (low, middle))
        steps.append(exchange(partner, theirs, partner, mine, reduce=True))
        low, high = mine
    return tuple(steps)


def doubling(rank: int, size: int) -> Steps:
    """Cut into ``size`` chunks, a power of two; from chunk r at rank r to all at all ranks. Nearest partners first."""
    distance = 1
    steps = []
    while distance < size:
        partner = rank ^ distance
        mine = rank // distance * distance
        theirs = partner // distance * distance
        steps.append(exchange(partner, (mine, mine + distance), partner, (theirs, theirs + distance)))
        distance *= 2
    return tuple(steps)


def exchanging(rank: int, size: int) -> Steps:
    """One chunk, ``size`` a power of two: partners swap everything and add, so all hold the sum after log2 p steps."""
    steps = []
    distance = 1
    while distance < size:
        steps.append(exchange(rank ^ distance, (0, 1), rank ^ distance, (0, 1), reduce=True))
        distance *= 2
    return tuple(steps)


def folded(rank: int, size: int, chunks: int, core: Callable[[int, int], Steps]) -> Steps:
    """Extend ``core``, an all-reduce among a power of two, to any number of ranks.

    With r ranks more than a power of two, each even rank below 2 r sends its contribution to its right neighbour, which
    adds it and takes part in ``core``; the even rank waits for the result.
    """
    power = 1 << size.bit_length() - 1
    extra = size - power
    whole = [(chunk, chunk + 1) for chunk in range(chunks)]
    if rank < 2 * extra and rank % 2 == 0:
        partner = rank + 1
        return (sending(partner, 0, chunks, reduce=True), receiving(partner, 0, chunks, reduce=False))
    members = [2 * i + 1 for i in range(extra)] + list(range(2 * extra, size))
    steps = placed(core(members.index(rank), power), members, whole)
    if rank < 2 * extra:
        partner = rank - 1
        return (receiving(partner, 0, chunks, reduce=True), *steps, sending(partner, 0, chunks, reduce=False))
    return steps


def butterfly(shape: GroupShape, rank: int) -> Schedule:
    """Recursive halving and doubling: 2 (p − 1)/p · n in 2 log2 p steps; two more of n if p is no power of 2."""
    power = 1 << shape.size.bit_length() - 1
    steps = folded(rank, shape.size, power, lambda r, p: halving(r, p) + doubling(r, p))
    return repeated(Schedule(even_cuts(power), (steps,)), shape.segments)


def recursive_doubling(shape: GroupShape, rank: int) -> Schedule:
    """Fewest steps, for small tensors: log2 p of n each. If p is no power of 2, ⌊log2 p⌋ and two more of n."""
    steps = folded(rank, shape.size, 1, exchanging)
    return repeated(Schedule(even_cuts(1), (steps,)), shape.segments)


def blocks_of(size: int) -> list[range]:
    """Return the blocks, largest first, into which ``size`` ranks are divided; each has a power of two of ranks."""
    blocks = []
    first = 0
    for digit in reversed(range(size.bit_length())):
        if size >> digit & 1:
            blocks.append(range(first, first + (1 << digit)))
            first += 1 << digit
    return blocks


def binary_blocks(shape: GroupShape, rank: int) -> Schedule:
    """Binary blocks (Rabenseifner, 2004), for numbers of ranks that are no power of two.

    The ranks form blocks of powers of two, the binary digits of p, largest first. Each block halves by itself; then the
    sums go from the smallest block to the next larger one, and so on, until the largest has them all; the results come
    back the same way, and each block doubles. Order of a sum: within a block as the butterfly, then plus the sum of all
    smaller blocks.
    """
    blocks = blocks_of(shape.size)
    chunks = len(blocks[0])
    index = next(i for i, block in enumerate(blocks) if rank in block)
    block = blocks[index]
    local = rank - blocks[index].start
    width = chunks // len(block)
    size = len(block)
    ranges = [(i * width, (i + 1) * width) for i in range(size)]
    steps: list[ScheduleStep] = list(placed(halving(local, size), block, ranges))
    smaller = _neighbours(blocks[index + 1], local, block, chunks) if index + 1 < len(blocks) else ()
    larger = _neighbours(blocks[index - 1], local, block, chunks) if index else ()
    steps += _exchange(smaller, larger)
    steps += placed(doubling(local, size), block, ranges)
    return repeated(Schedule(even_cuts(chunks), (tuple(steps),)), shape.segments)


def _neighbours(other: range, local: int, block: range, chunks: int) -> tuple[tuple[int, int, int], ...]:
    """Return the ranks of ``other`` that share chunks with rank ``local`` of ``block``, each as (rank, start, stop).

    start, stop  the range of chunks that both hold
    """
    narrow = chunks // max(len(other), len(block))
    many = max(1, len(other) // len(block))
    first = other.start + local * len(other) // len(block)
    start = local * (chunks // len(block))
    return tuple((first + i, start + i * narrow, start + (i + 1) * narrow) for i in range(many))


def _exchange(smaller: tuple[tuple[int, int, int], ...], larger: tuple[tuple[int, int, int], ...]) -> Steps:
    """Add the smaller block's sums, send the total to the larger block, take its results, pass them back."""
    return busy(
        ScheduleStep(receives=tuple(RankTransfer(*piece, True) for piece in smaller)),
        ScheduleStep(sends=tuple(RankTransfer(*piece, True) for piece in larger)),
        ScheduleStep(receives=tuple(RankTransfer(*piece) for piece in larger)),
        ScheduleStep(sends=tuple(RankTransfer(*piece) for piece in smaller)),
    )
