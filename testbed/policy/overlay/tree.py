"""A balanced tree that never changes: the baseline between a star and an overlay that looks at the network.

Contributions flow from the leaves to the server at the root, and each node adds up its children's; values flow back.
With one level the tree is a star, with one child per node a chain. It has the shape of MLNET's static aggregation tree
(Mai, Hong and Costa, Optimizing network performance in distributed machine learning, HotCloud 2015).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from testbed.axes import option
from testbed.policy.overlay.base import GroupSetting, Overlay, TreeOverlay
from testbed.policy.overlay.events import CHUNK, CHUNK_BYTES, MERGE
from testbed.policy.overlay.parents import Parents


class Star(Overlay):
    """No relays: members and their server exchange directly."""

    relays: ClassVar[bool] = False

    @dataclass(frozen=True, slots=True)
    class Options:
        """A star has no options."""


class Tree(TreeOverlay):
    """Balanced, ``degree`` children per node, in rank order."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """The shape of the tree, and what its nodes do with contributions."""

        degree: int = option(2, "children per node", min=1, max=1000)
        chunk: int = option(CHUNK_BYTES, **CHUNK)
        merge: str = option("sum", **MERGE)

    def __init__(self, setting: GroupSetting, options: Options) -> None:
        degree = options.degree
        members = range(len(setting.members))
        self.tree = Parents(tuple(-1 if member < degree else member // degree - 1 for member in members))

    def trees(self, elements: Mapping[int, int]) -> dict[int, Parents]:
        """Return the same tree for every chunk."""
        return dict.fromkeys(elements, self.tree)
