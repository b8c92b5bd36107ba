"""A job's execution trace in memory, independent of the file format. Sizes are in bytes, durations in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

COMPUTE = "compute"
MEMORY = "memory"  # data moved to or from memory, which occupies the compute queue
SEND = "send"
RECEIVE = "receive"
COLLECTIVE = "collective"
NOTHING = "nothing"  # metadata, and nodes that take no time
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

    id          number of the node in its file
    kind        ``COMPUTE``, ``MEMORY``, ``SEND``, ``RECEIVE``, ``COLLECTIVE`` or ``NOTHING``
    duration_s  duration that the trace states; 0: none
    operations  operations of a computation whose duration follows from the device's rate
    size_bytes  size of a message; for a collective operation, the data that this rank puts in; for other work, the
                memory that it reads or writes
    peer        the other rank of a message; the root of a collective with a root, -1 for the group's first rank
    tag         tag of a message; messages with one tag between two ranks keep their order
    operation   for a collective: ``ALL_REDUCE``, …
    group       for a collective: name of its process group, or ``EVERYONE``
    on_host     whether the host's processor does the work, rather than the accelerator
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
    """The work of one rank. Nodes are in the order of the file.

    groups  process groups that the file declares: ranks by name; an empty tuple means all ranks
    """

    rank: int
    file: str
    nodes: tuple[TraceNode, ...]
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def place(self, node: TraceNode) -> str:
        """Return the place of a node, for error messages."""
        name = f" '{node.name}'" if node.name else ""
        return f"{self.file}: rank {self.rank}, node {node.id}{name}"


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of a device, for work whose duration the trace does not state. 0: unknown."""

    operations_per_s: float = 0.0
    memory_bytes_per_s: float = 0.0

    def duration_s(self, node: TraceNode) -> float:
        """Return the duration of a node: that of the trace or else, for work, the longer of computing and memory."""
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
    """Return a whole number, which may be a text in JSON. Raise ``ValueError`` for a fraction or a truth value."""
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"{value} is not a whole number")
    return int(value)
