"""NetStorm: several trees of fastest aggregation paths, recomputed when the network has changed.

Li et al., Accelerating geo-distributed machine learning with network-aware adaptive tree and auxiliary route, IEEE/ACM
ToN 2024. The cost of a link is the time of a byte there and back. A tree joins every node to a hub along the cheapest
path, and any node may be a hub. The chunks are divided among the ``trees`` best trees in proportion to performance,
1 / Σ over levels of the slowest link's cost. So different chunks use different links. Here the optimizer stays with the
server, which is therefore the root of each tree, wherever the hub is. Before training, the plan's rates stand for the
paper's measurements. Later transfers are measured as they happen, and forgotten after ``expiry`` rounds. The values of
a chunk's round tell nodes of a new tree for its next round: so no two trees mix in a round, without further messages.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from testbed.axes import option
from testbed.policy.overlay.base import ROOT, GroupSetting, Rates, Throughput, TreeOverlay
from testbed.policy.overlay.events import CHUNK, MERGE
from testbed.policy.overlay.parents import Parents
from testbed.preset import Preset


class NetStorm(TreeOverlay):
    """Trees of fastest aggregation paths, planned again by the root when the network has changed."""

    adapts: ClassVar[bool] = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="netstorm",
            summary="gradients and values take trees of the fastest links over the WAN, planned again as rates change",
            source="Li et al., IEEE/ACM ToN 2024",
            settings={"overlay": {"tier1": "star", "tier2": {}}},
        ),
    )

    remembers = ("_used", "_throughput")

    @dataclass(frozen=True, slots=True)
    class Options:
        """How many trees there are, and when they are planned again."""

        trees: int = option(3, "how many trees at most", min=1, max=1000)
        change: float = option(0.1, "mean relative change of rates from which trees are recomputed", min=0, max=100)
        expiry: int = option(5, "rounds of its tier after which a measurement is forgotten", min=0, max=10**6)
        chunk: int = option(1_000_000, **CHUNK)
        merge: str = option("sum", **MERGE)

    def __init__(self, setting: GroupSetting, options: Options) -> None:
        self._members = len(setting.members)
        self._options = options
        self._planned = setting.planned_rates()
        self._throughput = Throughput(options.expiry * setting.lan_rounds)
        self._used = dict(self._planned)  # rates behind the trees that are in use

    def measured(self, source: int, target: int, bytes_per_s: float, round_: int) -> None:
        self._throughput.add(str(source), str(target), bytes_per_s, round_)

    def revise(self, round_: int) -> bool:
        get = self._throughput.get
        now = {(a, b): get(str(a), str(b), round_) or planned for (a, b), planned in self._planned.items()}
        changes = [abs(now[link] - rate) / rate for link, rate in self._used.items()]
        if not changes or sum(changes) / len(changes) <= self._options.change:
            return False
        self._used = now
        return True

    def trees(self, elements: Mapping[int, int]) -> dict[int, Parents]:
        """Assign each chunk, the largest first, to the tree that then has the least load for its performance."""
        hubs = [fastest_paths(hub, self._members, self._used) for hub in range(ROOT, self._members)]
        best = sorted(hubs, key=lambda tree: -performance(tree, self._used))[: self._options.trees]
        worth = [performance(tree, self._used) for tree in best]
        load = [0.0] * len(best)
        chosen: dict[int, Parents] = {}
        for chunk in sorted(elements, key=lambda chunk: (-elements[chunk], chunk)):
            index = min(range(len(best)), key=lambda index: (load[index] + elements[chunk]) / worth[index])
            load[index] += elements[chunk]
            chosen[chunk] = best[index]
        return chosen


def fastest_paths(hub: int, members: int, rates: Rates) -> Parents:
    """Return the tree of the cheapest paths to ``hub`` (Dijkstra; ties to the smaller rank), rooted at the server."""
    towards = {hub: hub}
    heap = [(0.0, hub, hub)]
    done: set[int] = set()
    while heap:
        so_far, node, above = heapq.heappop(heap)
        if node in done:
            continue
        done.add(node)
        towards[node] = above
        for other in range(ROOT, members):
            if other not in done and (cost := _cost(other, node, rates)) is not None:
                heapq.heappush(heap, (so_far + cost, other, node))
    assert len(done) == members + 1, "the links join all members and the root"
    return _hung_on_root(towards, members)


def _hung_on_root(towards: dict[int, int], members: int) -> Parents:
    """Return the same tree rooted at the server: the path from the server to the hub is reversed."""
    node = ROOT
    below = ROOT
    while towards[node] != node:
        above = towards[node]
        towards[node] = below
        node, below = above, node
    towards[node] = below
    return Parents(tuple(towards[member] for member in range(members)))


def performance(tree: Parents, rates: Rates) -> float:
    """Return 1 / Σ over the tree's levels of the slowest link's cost (s/byte), in bytes/s; infinite without members."""
    slowest: dict[int, float] = {}
    for member, above in enumerate(tree.parents):
        cost = _cost(member, above, rates)
        assert cost is not None
        level = tree.depth(member)
        slowest[level] = max(slowest.get(level, 0.0), cost)
    return 1 / sum(slowest.values()) if slowest else math.inf


def _cost(one: int, other: int, rates: Rates) -> float | None:
    """Return the time in seconds of a byte there and back; ``None`` without a link."""
    there = rates.get((one, other))
    back = rates.get((other, one))
    return 1 / there + 1 / back if there and back else None
