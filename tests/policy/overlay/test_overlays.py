"""Overlay policies as pure decisions: driven by a clock of their own, whatever the throughputs are."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.policy.overlay.base import GroupSetting, Throughput
from testbed.policy.overlay.events import OverlayTransfer, chunks_of
from testbed.policy.overlay.tree import Tree
from testbed.policy.overlay.tsengine import Stream, TsEngine
from tests.for_each import for_each

ROOT = "root"


def setting(members: tuple[str, ...], seed: int = 0) -> GroupSetting:
    return GroupSetting(ROOT, members, seed, dict)


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
            ready = [self.members[i] for i in order or range(len(self.members))] if up else [ROOT]
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
    assert [(each.source, each.target) for each in done] == [("m2", "m1"), ("m0", ROOT), ("m1", ROOT)]


def own_link(source: str, target: str) -> frozenset[str]:
    """Every member has a link of its own to the root; from member to member the path goes through the root."""
    ends = {source, target} - {ROOT}
    return frozenset(f"{end} {'up' if end == source else 'down'}" for end in ends)


@for_each("up", [True, False])
def test_transfers_of_one_chunk_that_share_no_link_run_at_the_same_time(up: bool) -> None:
    drive = Drive(6, lambda *_: 1.0)
    drive.policy = TsEngine(replace(setting(drive.members), path=own_link), TsEngine.Options(ports=4))
    first = drive.policy.ready(up, 0, 0, drive.members[0] if up else ROOT)
    for member in drive.members[1:] if up else ():
        first += drive.policy.ready(True, 0, 0, member)
    ends = [(each.source, each.target)[not up] for each in first if ROOT in (each.source, each.target)]
    assert len(ends) == len(set(ends)) == 4, "as many as the root has ports"


def test_over_a_shared_link_one_follows_the_other() -> None:
    drive = Drive(6, lambda *_: 1.0)
    drive.policy = TsEngine(replace(setting(drive.members), path=lambda *_: frozenset({"access"})), TsEngine.Options())
    assert len(drive.policy.ready(False, 0, 0, ROOT)) == 1


def with_slow_link(source: str, target: str, round_: int) -> float:
    return 0.02 if (source, target) == (ROOT, "m2") else 1.0


def test_a_slow_link_is_used_less_once_it_is_known() -> None:
    """Row 56."""
    drive = Drive(6, with_slow_link, max_greed=0.9)
    used = [any((t.source, t.target) == (ROOT, "m2") for t in drive.round(r, up=False)) for r in range(400)]
    drawn = Drive(6, with_slow_link, max_greed=0.0, expiry=10**6)
    by_chance = [any((t.source, t.target) == (ROOT, "m2") for t in drawn.round(r, up=False)) for r in range(400)]
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
