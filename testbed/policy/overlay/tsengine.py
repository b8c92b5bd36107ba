"""TSEngine: every transfer is scheduled by the root of the group, from measured throughputs.

Zhou et al., TSEngine: enabling communication scheduling for distributed machine learning over WAN, IEEE TNSM 18(4),
2021, and its code in GeoMX. A node sends only when the root tells it to.

Values (down): every holder asks for a receiver. With probability min(known / unserved, max_greed) that is the unserved
node with the highest measured throughput from this holder; otherwise a node without a measurement is drawn, or any if
all are measured. A receiver becomes a holder, so the number of holders doubles.

Contributions (up): nodes that are ready join a queue, the root among them. The first two are paired: towards the root
if it is one of them, else along the faster direction. The receiver merges and joins the queue again. So every node
receives one transfer of a chunk at a time, and merging happens elsewhere while the root is busy. At most ``ports``
transfers of different chunks are in flight to or from one node at a time: while one is being asked for, others keep its
link busy.
``pairing: fastest`` considers all pairs in the queue and takes the one with the highest measured throughput.

Unlike in GeoMX throughput is bytes over wall time, it expires, the greed is a fraction and applies, several chunks
are under way at once, and there may be several servers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations

from testbed.axes import option
from testbed.policy.overlay.base import GroupSetting, ScheduledOverlay, Throughput
from testbed.policy.overlay.events import CHUNK, CHUNK_BYTES, MERGE, OverlayTransfer

_MASK = (1 << 64) - 1


class Stream:
    """Independent draws: the same seed, the same decisions, in every world.

    SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a counter and a mixer, so nothing of the platform comes in.
    """

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def bits(self) -> int:
        """64 random bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def share(self) -> float:
        """Uniform in [0, 1)."""
        return (self.bits() >> 11) / (1 << 53)

    def below(self, count: int) -> int:
        """Uniform in 0 … count − 1, but for one part in 2^64 / count."""
        return self.bits() % count


class TsEngine(ScheduledOverlay):
    """Pairs senders and receivers by measured throughput."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """See the module's docstring."""

        max_greed: float = option(0.9, "largest probability of taking the best measured receiver", min=0, max=1)
        expiry: int = option(5, "rounds of its tier after which a measurement is forgotten", min=0, max=10**6)
        pairing: str = option(
            "first",
            "first: the first two in the queue, as published; fastest: the best measured pair in it",
            choices=("first", "fastest"),
        )
        ports: int = option(3, "transfers that a node takes in, or sends, at a time", min=1, max=1000)
        chunk: int = option(CHUNK_BYTES, **CHUNK)
        merge: str = option("sum", **MERGE)

    def __init__(self, setting: GroupSetting, options: Options) -> None:
        self._root, self._members, self._options = setting.root, setting.members, options
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
                self._gathers[where] = _Gather([self._root], dict.fromkeys(self._members, 1) | {self._root: 0})
            gather = self._gathers[where]
            if node not in gather.queue:
                gather.queue.append(node)
            if gather.weights[self._root] == len(self._members):
                del self._gathers[where]
        elif node == self._root:
            self._spreads[where] = _Spread([node], list(self._members))
        elif where in self._spreads:
            self._spreads[where].holders.append(node)
        return self._match()

    def arrived(self, transfer: OverlayTransfer, bytes_per_s: float) -> None:
        self._sending[transfer.source] -= 1
        self._taking[transfer.target] -= 1
        self.throughput.add(transfer.source, transfer.target, bytes_per_s, transfer.round)
        if not transfer.up and (spread := self._spreads.get((transfer.chunk, transfer.round))):
            spread.holders.append(transfer.source)
        if transfer.up:
            weights = self._gathers[transfer.chunk, transfer.round].weights
            weights[transfer.target] += weights.pop(transfer.source)

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
        return begun

    def _begin(self, transfer: OverlayTransfer) -> OverlayTransfer:
        self._sending[transfer.source] += 1
        self._taking[transfer.target] += 1
        return transfer

    def _grow(self, where: tuple[int, int], spread: _Spread) -> list[OverlayTransfer]:
        begun, waiting = [], []
        for holder in spread.holders:
            free = [node for node in spread.unserved if self._taking[node] < self._options.ports]
            if not free or self._sending[holder] >= self._options.ports:
                waiting.append(holder)
                continue
            receiver = self._receiver(holder, free, where[1])
            spread.unserved.remove(receiver)
            begun.append(self._begin(OverlayTransfer(False, *where, holder, receiver)))
        spread.holders = waiting
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
            return self._fastest(round_, gather.queue)
        pairs = (self._directed(pair, round_) for pair in combinations(gather.queue, 2))
        return next((pair for pair in pairs if self._can(*pair)), None)

    def _directed(self, pair: tuple[str, str], round_: int) -> tuple[str, str]:
        """Return (source, target): towards the root, or along the faster direction; if unknown, later to earlier."""
        first, second = pair
        if self._root in pair:
            return (second, first) if first == self._root else pair
        there, back = (self.throughput.get(*way, round_) or 0.0 for way in (pair, (second, first)))
        return pair if there > back else (second, first)

    def _fastest(self, round_: int, queue: list[str]) -> tuple[str, str] | None:
        """Return the pair with the highest throughput, or with probability 1 − max_greed one without a measurement."""
        pairs = [(a, b) for a in queue for b in queue if a not in (b, self._root) and self._can(a, b)]
        if not pairs:
            return None
        rates = {pair: self.throughput.get(*pair, round_) for pair in pairs}
        unknown = [pair for pair in pairs if rates[pair] is None]
        if unknown and self._stream.share() >= self._options.max_greed:
            return unknown[self._stream.below(len(unknown))]
        return max(pairs, key=lambda pair: rates[pair] or 0.0)

    def _can(self, source: str, target: str) -> bool:
        ports = self._options.ports
        return self._sending[source] < ports and self._taking[target] < ports


@dataclass(slots=True)
class _Gather:
    """A chunk's round in the direction up: ready nodes in order, and the number of contributions that each holds."""

    queue: list[str]
    weights: dict[str, int]


@dataclass(slots=True)
class _Spread:
    """A chunk's round in the direction down: holders that are free, and nodes that have not been served."""

    holders: list[str]
    unserved: list[str]
