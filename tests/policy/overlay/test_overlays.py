"""Overlay policies as pure decisions, whatever the throughputs are; NetStorm's trees by an independent solver."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.policy.overlay.base import ROOT, GroupSetting, Throughput
from testbed.policy.overlay.events import OverlayTransfer, chunks_of
from testbed.policy.overlay.netstorm import NetStorm, fastest_paths, performance
from testbed.policy.overlay.parents import Parents
from testbed.policy.overlay.tree import Tree
from testbed.policy.overlay.tsengine import Stream, TsEngine
from tests.for_each import for_each

HUB = "root"


def setting(members: tuple[str, ...], seed: int = 0) -> GroupSetting:
    return GroupSetting(HUB, members, seed, dict)


Rate = Callable[[str, str, int], float]


class Drive:
    """Rounds of some chunks through a policy; a transfer takes 1 / rate(source, target, round)."""

    def __init__(self, members: int, rate: Rate, chunks: int = 1, **options: object) -> None:
        self.members = tuple(f"m{number}" for number in range(members))
        self.policy = TsEngine(setting(self.members, seed=7), TsEngine.Options(**options))  # type: ignore[arg-type]
        self.rate, self.chunks = rate, chunks
        self.now = 0.0
        self.done: list[OverlayTransfer] = []
        self.under_way: Counter[tuple[str, str]] = Counter()
        self.most: Counter[str] = Counter()
        self._events: list[tuple[float, int, OverlayTransfer]] = []
        self._count = itertools.count()

    def round(self, round_: int, up: bool, order: list[int] | None = None) -> list[OverlayTransfer]:
        """All of one direction of one round; returns the transfers in the order of their ends."""
        self.done = []
        for chunk in range(self.chunks):
            ready = [self.members[i] for i in order or range(len(self.members))] if up else [HUB]
            for node in ready:
                self._begin(self.policy.ready(up, chunk, round_, node))
        while self._events:
            self.now, _, transfer = heapq.heappop(self._events)
            self.under_way["in", transfer.target] -= 1
            self.under_way["out", transfer.source] -= 1
            self.done.append(transfer)
            self.policy.arrived(transfer, self.rate(transfer.source, transfer.target, round_))
            self._begin(self.policy.ready(up, transfer.chunk, round_, transfer.target))
        return self.done

    def _begin(self, transfers: list[OverlayTransfer]) -> None:
        for transfer in transfers:
            for port in (("in", transfer.target), ("out", transfer.source)):
                self.under_way[port] += 1
                self.most[port[1]] = max(self.most[port[1]], self.under_way[port])
            end = self.now + 1 / self.rate(transfer.source, transfer.target, transfer.round)
            heapq.heappush(self._events, (end, next(self._count), transfer))


def random_rates(seed: int) -> Rate:
    def rate(source: str, target: str, round_: int) -> float:
        text = f"{seed} {source} {target} {round_ // 3}"
        return 1 + Stream(int.from_bytes(text.encode(), "big")).share() * 20

    return rate


CASES = {"members": st.integers(1, 12), "chunks": st.integers(1, 4), "ports": st.integers(1, 3)}


@given(**CASES, seed=st.integers(0, 99), pairing=st.sampled_from(["first", "fastest"]), data=st.data())
def test_no_node_takes_in_or_sends_more_than_its_ports(
    members: int, chunks: int, ports: int, seed: int, pairing: str, data: st.DataObject
) -> None:
    """In any order of arrival; ``testbed.testing.overlay`` holds every overlay to what must arrive."""
    drive = Drive(members, random_rates(seed), chunks, ports=ports, pairing=pairing)
    for round_ in range(3):
        drive.round(round_, up=True, order=data.draw(st.permutations(range(members))))
        drive.round(round_, up=False)
    assert max(drive.most.values()) <= ports


@for_each("members", [1, 3, 7, 15, 63])
def test_equal_rates_take_the_logarithm_of_the_number_of_nodes(members: int) -> None:
    """Closed form: ⌈log2(N + 1)⌉ transfers after each other, down."""
    drive = Drive(members, lambda *_: 1.0)
    drive.round(0, up=False)
    assert drive.now == pytest.approx((members + 1 - 1).bit_length())


def test_merges_happen_at_members_while_the_root_is_busy() -> None:
    """Row 54, GeoMX' trace of three workers: the first goes to the server, the second pair merges."""
    done = Drive(3, lambda source, target, _: 0.5 if source == "m0" else 1.0).round(0, up=True)
    assert [(each.source, each.target) for each in done] == [("m2", "m1"), ("m0", HUB), ("m1", HUB)]


def own_link(source: str, target: str) -> frozenset[str]:
    """Every member has a link of its own to the root; from member to member the path goes through the root."""
    ends = {source, target} - {HUB}
    return frozenset(f"{end} {'up' if end == source else 'down'}" for end in ends)


@for_each("up", [True, False])
def test_transfers_of_one_chunk_that_share_no_link_run_at_the_same_time(up: bool) -> None:
    drive = Drive(6, lambda *_: 1.0)
    drive.policy = TsEngine(replace(setting(drive.members), path=own_link), TsEngine.Options(ports=4))
    first = drive.policy.ready(up, 0, 0, drive.members[0] if up else HUB)
    for member in drive.members[1:] if up else ():
        first += drive.policy.ready(True, 0, 0, member)
    ends = [(each.source, each.target)[not up] for each in first if HUB in (each.source, each.target)]
    assert len(ends) == len(set(ends)) == 4, "as many as the root has ports"


def test_over_a_shared_link_one_follows_the_other() -> None:
    drive = Drive(6, lambda *_: 1.0)
    drive.policy = TsEngine(replace(setting(drive.members), path=lambda *_: frozenset({"access"})), TsEngine.Options())
    assert len(drive.policy.ready(False, 0, 0, HUB)) == 1


def with_slow_link(source: str, target: str, round_: int) -> float:
    return 0.02 if (source, target) == (HUB, "m2") else 1.0


def test_a_slow_link_is_used_less_once_it_is_known() -> None:
    """Row 56."""
    drive = Drive(6, with_slow_link, max_greed=0.9)
    used = [any((t.source, t.target) == (HUB, "m2") for t in drive.round(r, up=False)) for r in range(400)]
    drawn = Drive(6, with_slow_link, max_greed=0.0, expiry=10**6)
    by_chance = [any((t.source, t.target) == (HUB, "m2") for t in drawn.round(r, up=False)) for r in range(400)]
    assert sum(used) < 0.6 * sum(by_chance)


def test_measurements_expire() -> None:
    """Row 57."""
    throughput = Throughput(expiry=5)
    assert throughput.get("a", "b", 0) is None
    throughput.add("a", "b", 4.0, 3)
    assert throughput.get("a", "b", 8) == 4.0
    assert throughput.get("a", "b", 9) is None
    assert throughput.get("b", "a", 4) is None


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=40), st.integers(1, 40_000))
def test_chunks_hold_every_key_once_and_keep_to_their_size(sizes: list[int], limit: int) -> None:
    keys = {3 * index: size for index, size in enumerate(sizes)}
    chunks = chunks_of(keys, limit)
    assert [key for chunk in chunks for key in chunk.sizes] == sorted(keys)
    for chunk in chunks:
        assert chunk.name == min(chunk.sizes)
        assert 4 * sum(chunk.sizes.values()) <= limit or len(chunk.sizes) == 1


@given(st.integers(1, 60), st.integers(1, 6))
def test_a_balanced_tree_reaches_everybody(members: int, degree: int) -> None:
    tree = Tree(setting(tuple(map(str, range(members)))), Tree.Options(degree=degree)).tree
    assert sum(tree.size(child) for child in tree.children(-1)) == members
    assert all(len(tree.children(node)) <= degree for node in range(-1, members))
    assert tree.size(0) >= tree.size(members - 1) == 1
    assert sum(0 < len(tree.children(node)) < degree for node in range(-1, members)) <= 1, "all but the last are full"


def hub_of(members: int, rates: dict[tuple[int, int], float]) -> GroupSetting:
    return GroupSetting("root", tuple(f"m{rank}" for rank in range(members)), 0, lambda: rates)


@st.composite
def networks(draw: st.DrawFn) -> tuple[int, dict[tuple[int, int], float]]:
    """Members, and rates both ways of a connected graph over them and the root."""
    members = draw(st.integers(1, 8))
    edges = {(draw(st.integers(ROOT, member - 1)), member) for member in range(members)}
    pairs = [(a, b) for a in range(ROOT, members) for b in range(a + 1, members)]
    edges |= set(draw(st.lists(st.sampled_from(pairs), max_size=12)))
    rate = st.floats(1, 1000)
    return members, {way: draw(rate) for a, b in sorted(edges) for way in ((a, b), (b, a))}


def undirected(tree: Parents) -> nx.Graph:
    return nx.Graph([(member, above) for member, above in enumerate(tree.parents)])


@given(networks(), st.data())
def test_paths_to_the_hub_are_the_cheapest_there_are(
    network: tuple[int, dict[tuple[int, int], float]], data: st.DataObject
) -> None:
    members, rates = network
    hub = data.draw(st.integers(ROOT, members - 1))
    graph = nx.Graph()
    for one, other in rates:
        graph.add_edge(one, other, cost=1 / rates[one, other] + 1 / rates[other, one])
    tree = undirected(fastest_paths(hub, members, rates))
    assert nx.is_tree(tree) and len(tree) == members + 1
    for node in tree:
        path = nx.shortest_path(tree, node, hub)
        cost = sum(graph.edges[edge]["cost"] for edge in itertools.pairwise(path))
        assert cost == pytest.approx(nx.shortest_path_length(graph, node, hub, weight="cost"))


@given(networks(), st.integers(1, 4), st.lists(st.integers(1, 100), min_size=1, max_size=9))
def test_every_chunk_has_a_tree_of_the_best(
    network: tuple[int, dict[tuple[int, int], float]], count: int, sizes: list[int]
) -> None:
    members, rates = network
    trees = NetStorm(hub_of(members, rates), NetStorm.Options(trees=count)).trees(dict(enumerate(sizes)))
    assert set(trees) == set(range(len(sizes)))
    assert len({tree.parents for tree in trees.values()}) <= count
    every = [performance(fastest_paths(hub, members, rates), rates) for hub in range(ROOT, members)]
    used = {performance(tree, rates) for tree in trees.values()}
    assert min(used) >= sorted(every, reverse=True)[min(count, len(every)) - 1] * (1 - 1e-9)


def line(rate: float) -> dict[tuple[int, int], float]:
    """root - 0 - 1, and a direct way from the root to 1 at ``rate``."""
    ways = {(-1, 0): 10.0, (0, 1): 10.0, (-1, 1): rate}
    return {way: value for (a, b), value in ways.items() for way in ((a, b), (b, a))}


def test_it_plans_anew_when_a_link_has_changed_and_forgets() -> None:
    policy = NetStorm(hub_of(2, line(8.0)), NetStorm.Options(trees=1, change=0.1, expiry=5))
    assert policy.trees({0: 1})[0].parents == (-1, -1)
    assert not policy.revise(0)
    for way in ((-1, 1), (1, -1)):
        policy.measured(*way, 0.5, 3)
    assert policy.revise(3)
    assert policy.trees({0: 1})[0].parents == (-1, 0)
    assert not policy.revise(8)
    assert policy.revise(9)  # six rounds later the measurement is too old, and the Plan's rate stands again
    assert policy.trees({0: 1})[0].parents == (-1, -1)
