"""TSEngine: the root of the group schedules every transfer from measured throughputs.

Zhou et al., TSEngine: enabling communication scheduling for distributed machine learning over WAN, IEEE TNSM 18(4),
2021, and its code in GeoMX. A node sends only when the root tells it to.

Values (down): the root gives each node that holds the values (a holder) a receiver. With probability
min(known / unserved, max_greed) the receiver is the unserved node with the highest measured throughput from this
holder. Otherwise the root draws a node without a measurement, or any unserved node if all are measured. A receiver
becomes a holder, so the number of holders doubles.

Contributions (up): nodes that are ready join a queue, the root among them. The first two are paired: towards the root
if it is one of them, else along the faster direction. The receiver merges and joins the queue again. So other nodes
merge while the root is busy. A node sends at most ``ports`` transfers at a time, and receives as many: while it asks
for one, the others keep its link busy. Within one chunk, a holder sends (and the root receives) several transfers at a
time only if, in the Plan, their paths share no link of the WAN, and if no other member is known to be faster. Over a
shared link all of them would end only when the last does.
``pairing: fastest`` considers all pairs in the queue and takes the one with the highest measured throughput.

Differences from GeoMX: a node uses several links at the same time, throughput is bytes over wall time, measurements
expire, the greed is a fraction and takes effect, several chunks are under way at once, and there may be several
servers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar

from testbed.axes import option
from testbed.policy.overlay.base import GroupSetting, ScheduledOverlay, Throughput
from testbed.policy.overlay.events import CHUNK, MERGE, OverlayTransfer
from testbed.preset import Preset
from testbed.state import Remembering

_MASK = (1 << 64) - 1


class Stream(Remembering):
    """Independent draws: the same seed gives the same decisions in every world.

    SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a counter and a mixer, so draws do not depend on the platform.
    """

    remembers = ("position",)

    def __init__(self, seed: int) -> None:
        self.position = seed & _MASK

    def bits(self) -> int:
        self.position = (self.position + 0x9E3779B97F4A7C15) & _MASK
        mixed = self.position
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def share(self) -> float:
        return (self.bits() >> 11) / (1 << 53)

    def below(self, count: int) -> int:
        """Return a draw from 0 … count − 1, uniform up to a relative error of count / 2^64."""
        return self.bits() % count


class TsEngine(ScheduledOverlay):
    """Pairs senders and receivers by measured throughput."""

    regroups: ClassVar[bool] = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="tsengine",
            summary="models and gradients take the path that has been fast lately, through other data centres",
            source="GeoMX; Zhou et al., IEEE TNSM 2021",
            settings={"overlay": {"tier1": "star", "tier2": {}}},
        ),
    )

    remembers = ("_stream", "throughput")

    @dataclass(frozen=True, slots=True)
    class Options:
        """How receivers are chosen, and how many transfers a node makes at a time."""

        max_greed: float = option(0.9, "largest probability of taking the best measured receiver", min=0, max=1)
        expiry: int = option(5, "rounds of its tier after which a measurement is forgotten", min=0, max=10**6)
        pairing: str = option(
            "first",
            "first: the first two in the queue, as published; fastest: the best measured pair in it",
            choices=("first", "fastest"),
        )
        ports: int = option(8, "transfers that a node takes in, or sends, at a time", min=1, max=1000)
        chunk: int = option(64_000, **CHUNK)
        merge: str = option("sum", **MERGE)

    def __init__(self, setting: GroupSetting, options: Options) -> None:
        self._root = setting.root
        self._members = setting.members
        self._options = options
        self._path = setting.path
        self._taking_part: dict[int, tuple[str, ...]] = {}  # by chunk, if not all members take part
        self._stream = Stream(setting.seed)
        self.throughput = Throughput(options.expiry * setting.lan_rounds)
        self._gathers: dict[tuple[int, int], _Gather] = {}
        self._spreads: dict[tuple[int, int], _Spread] = {}
        self._sending: Counter[str] = Counter()
        self._taking: Counter[str] = Counter()

    def ready(self, up: bool, chunk: int, round_: int, node: str) -> list[OverlayTransfer]:
        where = (chunk, round_)
        if up:
            if where not in self._gathers:
                self._gathers[where] = _Gather([self._root], dict.fromkeys(self._present(chunk), 1) | {self._root: 0})
            gather = self._gathers[where]
            if node not in gather.queue:
                gather.queue.append(node)
            if gather.weights[self._root] == len(self._present(chunk)):
                del self._gathers[where]
        elif node == self._root:
            self._spreads[where] = _Spread([node], list(self._present(chunk)))
        elif where in self._spreads:
            self._spreads[where].holders.append(node)
        return self._match()

    def arrived(self, transfer: OverlayTransfer, bytes_per_s: float) -> None:
        self._sending[transfer.source] -= 1
        self._taking[transfer.target] -= 1
        self.throughput.add(transfer.source, transfer.target, bytes_per_s, transfer.round)
        where = (transfer.chunk, transfer.round)
        if not transfer.up and (spread := self._spreads.get(where)):
            spread.begun.remove(transfer)
        if transfer.up:
            gather = self._gathers[where]
            gather.weights[transfer.target] += gather.weights.pop(transfer.source)
            if transfer.target == self._root:
                gather.begun.remove(transfer)

    def reset(self) -> None:
        for under_way in (self._gathers, self._spreads, self._sending, self._taking):
            under_way.clear()

    def regroup(self, chunk: int, members: Sequence[str]) -> None:
        self._taking_part[chunk] = tuple(members)

    def _present(self, chunk: int) -> tuple[str, ...]:
        return self._taking_part.get(chunk, self._members)

    # ---- choices ------------------------------------------------------------------------------------------------

    def _match(self) -> list[OverlayTransfer]:
        """Return all transfers that can begin now."""
        begun: list[OverlayTransfer] = []
        for where, spread in list(self._spreads.items()):
            begun += self._grow(where, spread)
            if not spread.unserved:
                del self._spreads[where]
        for where, gather in self._gathers.items():
            while (pair := self._pair(where[1], gather)) is not None:
                begun.append(self._begin(OverlayTransfer(True, *where, *pair)))
                gather.queue = [node for node in gather.queue if node not in pair]
                if pair[1] == self._root:
                    gather.begun.append(begun[-1])
                    gather.queue.append(self._root)
        return begun

    def _begin(self, transfer: OverlayTransfer) -> OverlayTransfer:
        self._sending[transfer.source] += 1
        self._taking[transfer.target] += 1
        return transfer

    def _grow(self, where: tuple[int, int], spread: _Spread) -> list[OverlayTransfer]:
        begun = []
        for holder in spread.holders:
            while free := [node for node in spread.unserved if self._can(holder, node, where[1], spread.begun)]:
                receiver = self._receiver(holder, free, where[1])
                spread.unserved.remove(receiver)
                begun.append(self._begin(OverlayTransfer(False, *where, holder, receiver)))
                spread.begun.append(begun[-1])
        return begun

    def _receiver(self, holder: str, unserved: list[str], round_: int) -> str:
        known = {node: rate for node in unserved if (rate := self.throughput.get(holder, node, round_)) is not None}
        greed = min(len(known) / len(unserved), self._options.max_greed)
        if known and self._stream.share() < greed:
            return max(known, key=lambda node: known[node])
        unknown = [node for node in unserved if node not in known] or unserved
        return unknown[self._stream.below(len(unknown))]

    def _pair(self, round_: int, gather: _Gather) -> tuple[str, str] | None:
        """Return a sender and a receiver from the queue, or ``None``."""
        if self._options.pairing == "fastest":
            return self._fastest(round_, gather)
        pairs = (self._directed(pair, round_) for pair in combinations(gather.queue, 2))
        return next((pair for pair in pairs if self._can(*pair, round_, gather.begun)), None)

    def _directed(self, pair: tuple[str, str], round_: int) -> tuple[str, str]:
        """Return (source, target): towards the root, or along the faster direction; if unknown, later to earlier."""
        first, second = pair
        if self._root in pair:
            return (second, first) if first == self._root else pair
        there, back = (self.throughput.get(*way, round_) or 0.0 for way in (pair, (second, first)))
        return pair if there > back else (second, first)

    def _fastest(self, round_: int, gather: _Gather) -> tuple[str, str] | None:
        """Return the pair with the highest throughput, or with probability 1 − max_greed one without a measurement."""
        queue = gather.queue
        begun = gather.begun
        pairs = [(a, b) for a in queue for b in queue if a not in (b, self._root) and self._can(a, b, round_, begun)]
        if not pairs:
            return None
        rates = {pair: self.throughput.get(*pair, round_) for pair in pairs}
        unknown = [pair for pair in pairs if rates[pair] is None]
        if unknown and self._stream.share() >= self._options.max_greed:
            return unknown[self._stream.below(len(unknown))]
        return max(pairs, key=lambda pair: rates[pair] or 0.0)

    def _can(self, source: str, target: str, round_: int, begun: list[OverlayTransfer]) -> bool:
        """Return whether the transfer may begin: both nodes have a free port, and no transfer of ``begun`` hinders it.

        begun  transfers of the same chunk under way. One with the same source or target hinders if the paths share a
               link, or if another node is known to be faster
        """
        ports = self._options.ports
        if self._sending[source] >= ports or self._taking[target] >= ports:
            return False
        others = [each for each in begun if each.source == source or each.target == target]
        if not others:
            return True
        path = self._path(source, target)
        if not path or any(path & self._path(each.source, each.target) for each in others):
            return False
        return self._is_best(source, target, round_)

    def _is_best(self, source: str, target: str, round_: int) -> bool:
        """Return whether no other transfer with a member is known to be faster.

        Towards the root, that is a transfer from ``source`` to another member; otherwise one from another member to
        ``target``.
        """
        rate = self.throughput.get(source, target, round_) or 0.0
        ways = [
            (source, n) if target == self._root else (n, target) for n in self._members if n not in (source, target)
        ]
        return all((self.throughput.get(*way, round_) or 0.0) <= rate for way in ways)


@dataclass(slots=True)
class _Gather:
    """A chunk's round on the way up.

    queue    ready nodes, in order
    weights  by node: the number of contributions that it holds
    begun    transfers to the root that are under way
    """

    queue: list[str]
    weights: dict[str, int]
    begun: list[OverlayTransfer] = field(default_factory=list)


@dataclass(slots=True)
class _Spread:
    """A chunk's round on the way down: nodes with the values, nodes without a sender yet, and transfers under way."""

    holders: list[str]
    unserved: list[str]
    begun: list[OverlayTransfer] = field(default_factory=list)
