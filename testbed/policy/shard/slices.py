"""Parts of keys, and keys together: slices, which live on one server under wire keys of their own, and buckets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

ELEMENT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Slice:
    """Elements ``start`` to ``stop`` of the flattened ``key``: ``wire_key`` on the wire, held by ``server``."""

    wire_key: int
    key: int
    start: int
    stop: int
    server: int


def numbered(pieces: list[tuple[int, int, int, int]]) -> tuple[Slice, ...]:
    """Return slices from (key, start, stop, server), with wire keys 0, 1, 2, … in the order given."""
    return tuple(Slice(wire_key, *piece) for wire_key, piece in enumerate(pieces))


def evenly(size: int, parts: int) -> list[int]:
    """Return the sizes between cuts at round(size·i/parts), halves rounded up as in C; some are 0 if size < parts."""
    return [stop - start for start, stop in pairwise((2 * size * i + parts) // (2 * parts) for i in range(parts + 1))]


def one_after_another(key: int, parts: Iterable[int]) -> list[tuple[int, int, int, int]]:
    """Return the pieces of a key for ``numbered``. ``parts``: number of elements for each server, in order."""
    ends = list(accumulate(parts, initial=0))
    return [(key, start, stop, server) for server, (start, stop) in enumerate(pairwise(ends)) if stop > start]


def sliced(slices: Iterable[Slice], elements: int) -> tuple[Slice, ...]:
    """Return slices cut further into pieces of at most ``elements``, renumbered in their order."""
    pieces: list[tuple[int, int, int, int]] = []
    for piece in slices:
        for start in range(piece.start, piece.stop, elements):
            pieces.append((piece.key, start, min(start + elements, piece.stop), piece.server))
    return numbered(pieces)


def alike(slices: Iterable[Slice], elements: int) -> tuple[Slice, ...]:
    """Return slices cut further into equal pieces, of the size that comes nearest to ``elements``; renumbered."""
    pieces: list[tuple[int, int, int, int]] = []
    for piece in slices:
        size = piece.stop - piece.start
        ends = accumulate(evenly(size, max(1, round(size / elements))), initial=piece.start)
        pieces += [(piece.key, start, stop, piece.server) for start, stop in pairwise(ends) if stop > start]
    return numbered(pieces)


def by_rows(slices: Sequence[Slice], widths: Mapping[int, int]) -> tuple[Slice, ...]:
    """Return renumbered slices with cuts moved down to the start of a row. ``widths``: elements of a row, by key."""
    pieces: list[tuple[int, int, int, int]] = []
    for piece in slices:
        width = widths.get(piece.key, 1)
        start, stop = (cut // width * width for cut in (piece.start, piece.stop))
        if stop > start:
            pieces.append((piece.key, start, stop, piece.server))
    return numbered(pieces)


def buckets_of(sizes: Sequence[int], bucket_bytes: int) -> tuple[tuple[int, ...], ...]:
    """Return the keys of each bucket, from the last key to the first, as backpropagation yields their gradients.

    Small tensors travel together (gradient bucketing of PyTorch DDP: Li et al., VLDB 2020).
    """
    return tuple(map(tuple, grouped(reversed(range(len(sizes))), sizes, bucket_bytes)))


def grouped(keys: Iterable[int], sizes: Sequence[int] | Mapping[int, int], limit_bytes: int) -> list[list[int]]:
    """Return groups of consecutive ``keys`` with at most ``limit_bytes``; a larger tensor is a group of its own.

    sizes  elements of each key
    """
    groups: list[list[int]] = []
    room = 0
    for key in keys:
        size_bytes = ELEMENT_BYTES * sizes[key]
        if not groups or size_bytes > room:
            groups.append([])
            room = limit_bytes
        groups[-1].append(key)
        room -= size_bytes
    return groups
