"""A balanced tree that never changes: the baseline between a star and an overlay that looks at the network.

Contributions flow from the leaves to the server at the root, each node adding up what its children sent; values flow
back. With one level it is the star, with one child per node a chain. It is MLNET's static aggregation tree in shape
(Mai, Hong and Costa, Optimizing network performance in distributed machine learning, HotCloud 2015).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.policy.overlay.events import CHUNK, CHUNK_BYTES, MERGE


class Parents:
    """A tree over a root and members 0 … n − 1: ``parents[i]`` is the member above i, −1 the root."""

    def __init__(self, parents: tuple[int, ...]) -> None:
        self.parents = parents
        self._sizes = [1] * len(parents)
        for member in range(len(parents)):
            above, steps = parents[member], 0
            while above >= 0:
                self._sizes[above] += 1
                above, steps = parents[above], steps + 1
                assert steps <= len(parents), f"{parents} has a cycle"

    def children(self, member: int) -> tuple[int, ...]:
        """Members right below ``member``, −1 for the root, in rank order."""
        return tuple(child for child, above in enumerate(self.parents) if above == member)

    def depth(self, member: int) -> int:
        """Transfers between ``member`` and the root."""
        depth = 0
        while member >= 0:
            member, depth = self.parents[member], depth + 1
        return depth

    def size(self, member: int) -> int:
        """Members in the subtree of ``member``, itself included."""
        return self._sizes[member]


class Tree:
    """Balanced, ``degree`` children per node, in rank order."""

    coordinated = False

    @dataclass(frozen=True, slots=True)
    class Options:
        """See the module's docstring."""

        degree: int = field(default=2, metadata={"help": "children per node", "min": 1, "max": 1000})
        chunk: int = field(default=CHUNK_BYTES, metadata=CHUNK)
        merge: str = field(default="sum", metadata=MERGE)

    def __init__(self, members: int, options: Options) -> None:
        degree = options.degree
        self.tree = Parents(tuple(-1 if member < degree else member // degree - 1 for member in range(members)))

    def trees(self, chunks: Mapping[int, int]) -> dict[int, Parents]:
        """The tree of each chunk: one and the same."""
        return dict.fromkeys(chunks, self.tree)
