"""A chain: every member passes on what the member behind it sent. Long groups keep every link busy with few sums."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.policy.overlay.base import ROOT, GroupSetting, TreeOverlay
from testbed.policy.overlay.events import CHUNK, CHUNK_BYTES, MERGE
from testbed.policy.overlay.parents import Parents


class Chain(TreeOverlay):
    """Member 0 is next to the server; every second chunk runs along the reversed chain."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """What every overlay with relays has."""

        chunk: int = field(default=CHUNK_BYTES, metadata=CHUNK)
        merge: str = field(default="exact", metadata=MERGE)

    def __init__(self, setting: GroupSetting, options: Options) -> None:
        last = len(setting.members) - 1
        forward = Parents(tuple(range(ROOT, last)))
        backward = Parents(tuple(rank + 1 if rank < last else ROOT for rank in range(last + 1)))
        self._trees = (forward, backward)

    def trees(self, elements: Mapping[int, int]) -> dict[int, Parents]:
        return {chunk: self._trees[index % 2] for index, chunk in enumerate(sorted(elements))}
