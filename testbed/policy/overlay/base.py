"""The contract of an overlay: along which nodes contributions and values travel between a server and its members.

A *group* is one server, the root, and the children that contribute to its rounds, the members; ranks count the
members, −1 is the root. An overlay decides in one of two ways: by trees that every node knows (``TreeOverlay``), or
transfer by transfer, by the root (``ScheduledOverlay``). ``docs/axes/overlay.md`` explains both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.policy.overlay.events import OverlayTransfer
from testbed.policy.overlay.parents import Parents
from testbed.preset import Preset
from testbed.state import Remembering

ROOT = -1  # the rank of the server
Rates = Mapping[tuple[int, int], float]  # bytes per second between ranks, directed; a missing pair has no link


@dataclass(frozen=True, slots=True)
class GroupSetting:
    """What an overlay knows of its group.

    seed           seed of its random draws
    planned_rates  returns the Plan's rates between data centres with no other data centre on the path
    lan_rounds     how many rounds of a worker there are per round that reaches this group; transfers are numbered by
                   the worker's rounds
    path           returns the links of the WAN from one node to another; none inside a data centre
    """

    root: str
    members: tuple[str, ...]
    seed: int
    planned_rates: Callable[[], Rates]
    lan_rounds: int = 1
    path: Callable[[str, str], frozenset[str]] = lambda source, target: frozenset()


class Overlay(Remembering, ABC):
    """Made as ``cls(setting, cls.Options(...))``. ``Options`` has ``chunk`` and ``merge`` where ``relays`` is true.

    relays    members send to members; otherwise every member exchanges with the server directly
    adapts    nodes report the throughput of transfers, and the trees may change between rounds
    routes    members can pass on single contributions, for algorithms that apply each as it arrives
    regroups  it continues without lost members, and with joining ones
    presets   named techniques that use this class; a subclass does not inherit them
    """

    relays: ClassVar[bool] = True
    adapts: ClassVar[bool] = False
    routes: ClassVar[bool] = False
    regroups: ClassVar[bool] = False
    presets: ClassVar[tuple[Preset, ...]] = ()
    Options: ClassVar[type[Any]]


class TreeOverlay(Overlay):
    """Every node makes this policy from equal settings, so all nodes know the first trees without a message.

    If members are lost, the members below them send to the next member above (``Parents.without``).
    """

    routes: ClassVar[bool] = True
    regroups: ClassVar[bool] = True

    @abstractmethod
    def __init__(self, setting: GroupSetting, options: Any) -> None: ...

    @abstractmethod
    def trees(self, elements: Mapping[int, int]) -> dict[int, Parents]:
        """Return the tree of each chunk. ``elements``: number of elements of each chunk."""

    def measured(self, source: int, target: int, bytes_per_s: float, round_: int) -> None:
        """Note the throughput of a transfer between two ranks that has ended; called at the root if ``adapts``."""

    def revise(self, round_: int) -> bool:
        """Return whether ``trees`` would now return different trees; called at the root if ``adapts``."""
        return False


class ScheduledOverlay(Overlay):
    """Only the root has this policy; members ask the root where to send the contributions or values that they hold."""

    @abstractmethod
    def __init__(self, setting: GroupSetting, options: Any) -> None: ...

    @abstractmethod
    def ready(self, up: bool, chunk: int, round_: int, node: str) -> list[OverlayTransfer]:
        """Return the transfers that can begin now.

        ``up``: ``node`` has all contributions to (chunk, round) that it can have by now; otherwise it holds the values.
        """

    @abstractmethod
    def arrived(self, transfer: OverlayTransfer, bytes_per_s: float) -> None:
        """Note that a transfer has ended, with its throughput. Its target calls ``ready`` afterwards."""

    def reset(self) -> None:
        """Forget all transfers under way, because the membership has changed. Called only with ``regroups``."""
        raise AssertionError(f"{type(self).__name__} declares no regroups")

    def regroup(self, chunk: int, members: Sequence[str]) -> None:
        """Let these members (in rank order) relay from the next round of ``chunk`` on. Only with ``regroups``."""
        raise AssertionError(f"{type(self).__name__} declares no regroups")


class Throughput(Remembering):
    """The latest measurement per directed pair: bytes over wall time of what really travelled.

    It is forgotten ``expiry`` rounds after the round it was made in.
    """

    remembers = ("_measured",)

    def __init__(self, expiry: int) -> None:
        self._expiry = expiry
        self._measured: dict[tuple[str, str], tuple[float, int]] = {}

    def add(self, source: str, target: str, bytes_per_s: float, round_: int) -> None:
        self._measured[source, target] = (bytes_per_s, round_)

    def get(self, source: str, target: str, round_: int) -> float | None:
        """Bytes per second, or ``None`` if it is unknown, or forgotten by ``round_``."""
        bytes_per_s, made = self._measured.get((source, target), (0.0, -1))
        return bytes_per_s if made >= 0 and round_ - made <= self._expiry else None
