"""Broken on purpose: measurements change the trees at once, although ``revise`` returns False."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.policy.overlay.base import ROOT, GroupSetting, TreeOverlay
from testbed.policy.overlay.events import CHUNK, CHUNK_BYTES, MERGE
from testbed.policy.overlay.parents import Parents


class ChangesUnannounced(TreeOverlay):
    """The member with the fastest link to the root relays for all others."""

    adapts = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """What every overlay with relays has."""

        chunk: int = field(default=CHUNK_BYTES, metadata=CHUNK)
        merge: str = field(default="exact", metadata=MERGE)

    def __init__(self, setting: GroupSetting, options: Options) -> None:
        self._members = len(setting.members)
        self._rates = dict.fromkeys(range(self._members), 1.0)

    def measured(self, source: int, target: int, bytes_per_s: float, round_: int) -> None:
        if target == ROOT:
            self._rates[source] = bytes_per_s

    def trees(self, elements: Mapping[int, int]) -> dict[int, Parents]:
        relay = max(self._rates, key=lambda rank: self._rates[rank])
        tree = Parents(tuple(ROOT if rank == relay else relay for rank in range(self._members)))
        return dict.fromkeys(elements, tree)
