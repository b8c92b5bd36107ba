"""A job's execution trace in memory, whatever file it was read from. Sizes are in bytes, durations in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

COMPUTE = "compute"
MEMORY = "memory"  # moved to or from memory, which takes the compute queue
SEND = "send"
RECEIVE = "receive"
COLLECTIVE = "collective"
NOTHING = "nothing"  # metadata, and what takes no time
ALL_REDUCE = "all_reduce"
REDUCE = "reduce"
ALL_GATHER = "all_gather"
GATHER = "gather"
SCATTER = "scatter"
BROADCAST = "broadcast"
ALL_TO_ALL = "all_to_all"
REDUCE_SCATTER = "reduce_scatter"
BARRIER = "barrier"
ROOTED = (REDUCE, GATHER, SCATTER, BROADCAST)
EVERYONE = ""  # the group of all ranks


class TraceNode(msgspec.Struct, frozen=True, gc=False):
    """One piece of work of one rank. It begins when the nodes ``after`` have ended.

    id          in its file
    kind        ``COMPUTE``, ``MEMORY``, ``SEND``, ``RECEIVE``, ``COLLECTIVE`` or ``NOTHING``
    duration_s  that the trace states; 0: none
    operations  of a computation whose duration follows from the device's rate
    size_bytes  of a message; of a collective operation what this rank puts in; of others the memory that they touch
    peer        the other rank of a message; of a collective with a root, that rank, or -1 for the group's first
    tag         of a message; messages of one tag between two ranks keep their order
    operation   of a collective: ``ALL_REDUCE``, …
    group       of a collective: name of its process group, or ``EVERYONE``
    on_host     whether the processor beside the accelerator does it
    """

    id: int
    name: str
    kind: str
    after: tuple[int, ...] = ()
    duration_s: float = 0.0
    operations: float = 0.0
    size_bytes: int = 0
    peer: int = -1
    tag: int = 0
    operation: str = ""
    group: str = EVERYONE
    on_host: bool = False


@dataclass(frozen=True, slots=True)
class RankTrace:
    """What one rank does. Nodes are in the order of the file.

    groups  ranks of the process groups that the file declares, by name; an empty tuple: all ranks
    """

    rank: int
    file: str
    nodes: tuple[TraceNode, ...]
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def place(self, node: TraceNode) -> str:
        """Return where a node is, for a refusal."""
        name = f" '{node.name}'" if node.name else ""
        return f"{self.file}: rank {self.rank}, node {node.id}{name}"


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device does in a second, for work of which a trace states no duration. 0: unknown."""

    operations_per_s: float = 0.0
    memory_bytes_per_s: float = 0.0

    def duration_s(self, node: TraceNode) -> float:
        """Return how long a computation takes: what the trace states, or the longer one of computing and memory."""
        if node.duration_s or node.kind not in (COMPUTE, MEMORY):
            return node.duration_s
        computing_s = node.operations / self.operations_per_s if node.operations and self.operations_per_s else 0.0
        memory_s = node.size_bytes / self.memory_bytes_per_s if node.size_bytes and self.memory_bytes_per_s else 0.0
        return max(computing_s, memory_s)


@dataclass(frozen=True, slots=True)
class JobTrace:
    """All ranks of a job, by rank, and its process groups by name."""

    ranks: tuple[RankTrace, ...]
    groups: dict[str, tuple[int, ...]]

    def members(self, group: str) -> tuple[int, ...]:
        return self.groups.get(group) or tuple(range(len(self.ranks)))


def whole(value: Any) -> int:
    """Return a whole number, which JSON may have as a text. Raise ``ValueError`` for a fraction, or a truth value."""
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"{value} is not a whole number")
    return int(value)
