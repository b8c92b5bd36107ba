"""A rooted tree over the ranks of a group."""

from __future__ import annotations

from collections.abc import Collection


class Parents:
    """A tree over a root and members 0 … n − 1: ``parents[i]`` is the member above i, −1 the root."""

    def __init__(self, parents: tuple[int, ...]) -> None:
        self.parents = parents
        self._sizes = [1] * len(parents)
        for member in range(len(parents)):
            above = parents[member]
            steps = 0
            while above >= 0:
                self._sizes[above] += 1
                above, steps = parents[above], steps + 1
                assert steps <= len(parents), f"{parents} has a cycle"

    def without(self, ranks: Collection[int]) -> Parents:
        """Return the tree in which the members ``ranks`` relay nothing: each is a leaf right below the root.

        A member below one of them moves to the nearest member above that still relays.
        """
        if not ranks:
            return self
        found = []
        for member in range(len(self.parents)):
            above = self.parents[member]
            while above in ranks:
                above = self.parents[above]
            found.append(-1 if member in ranks else above)
        return Parents(tuple(found))

    def children(self, member: int) -> tuple[int, ...]:
        """Return the members right below ``member`` (−1: the root), in rank order."""
        return tuple(child for child, above in enumerate(self.parents) if above == member)

    def depth(self, member: int) -> int:
        """Return the number of transfers between ``member`` and the root."""
        return len(self.path(member))

    def path(self, member: int) -> list[int]:
        """Return the ranks from ``member`` to the root, −1, without ``member`` itself."""
        above = []
        while member >= 0:
            member = self.parents[member]
            above.append(member)
        return above

    def size(self, member: int) -> int:
        """Return the number of members in the subtree of ``member``, itself included."""
        return self._sizes[member]
