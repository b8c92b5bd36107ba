"""A slice: the part of a key that lives on one server, under a wire key of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slice:
    """Elements ``start`` to ``stop`` of the flattened ``key``: ``wire_key`` on the wire, held by ``server``."""

    wire_key: int
    key: int
    start: int
    stop: int
    server: int


def numbered(pieces: list[tuple[int, int, int, int]]) -> tuple[Slice, ...]:
    """Slices from (key, start, stop, server), numbered in the order given. Wire keys are 0, 1, 2, …"""
    return tuple(Slice(wire_key, *piece) for wire_key, piece in enumerate(pieces))
