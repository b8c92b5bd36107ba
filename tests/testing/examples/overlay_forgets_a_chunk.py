"""Broken on purpose: the largest chunk has no tree."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.policy.overlay.base import ROOT, GroupSetting, TreeOverlay
from testbed.policy.overlay.events import CHUNK, CHUNK_BYTES, MERGE
from testbed.policy.overlay.parents import Parents


class ForgetsAChunk(TreeOverlay):
    """A star as a tree."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """What every overlay with relays has."""

        chunk: int = field(default=CHUNK_BYTES, metadata=CHUNK)
        merge: str = field(default="exact", metadata=MERGE)

    def __init__(self, setting: GroupSetting, options: Options) -> None:
        self._tree = Parents((ROOT,) * len(setting.members))

    def trees(self, elements: Mapping[int, int]) -> dict[int, Parents]:
        largest = max(elements, key=lambda chunk: elements[chunk])
        return {chunk: self._tree for chunk in elements if chunk != largest}
