"""The decisions of an overlay as plain data: which node sends which chunk to which node.

A *group* is one server, the root, and the children that contribute to its rounds, the members. Keys travel in
*chunks*, which are named by their first key. Up travel the members' contributions to a round, merged on the way. Down
travel the values after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.policy.shard.slices import grouped

CHUNK: dict[str, Any] = {
    "help": "keys of one server travel together up to this size (as float32); a larger key is a chunk of its own",
    "unit": "bytes",
}
CHUNK_BYTES = 4_000_000
MERGE: dict[str, Any] = {
    "help": "sum: nodes add up what they pass on, so a server takes in few sums, and rounding depends on the tree; "
    "exact: contributions travel on one by one, and the sum has the bits that a star gives",
    "choices": ("sum", "exact"),
}


@dataclass(frozen=True, slots=True)
class OverlayTransfer:
    """``source`` is to send ``chunk`` of ``round`` to ``target``."""

    up: bool
    chunk: int
    round: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Keys that travel together: wire key to elements, in order."""

    name: int
    sizes: Mapping[int, int] = field(hash=False)


def chunks_of(sizes: Mapping[int, int], limit_bytes: int) -> list[Chunk]:
    """Return chunks of consecutive keys of one server, up to ``limit_bytes`` each; equal at all nodes of a group."""
    chunks = grouped(sorted(sizes), sizes, limit_bytes)
    return [Chunk(keys[0], {key: sizes[key] for key in keys}) for keys in chunks]
