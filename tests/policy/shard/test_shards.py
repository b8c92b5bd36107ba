"""Placement of keys on global servers: everything exactly once, and how level the servers are."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from testbed.policy.shard.hashed import Hashed
from testbed.policy.shard.multigps import MultiGps, filling
from testbed.policy.shard.slices import Slice, alike, by_rows, sliced
from tests.for_each import for_each

DEMO_CNN = (400, 16, 12_800, 32, 131_072, 256, 32_768, 128, 1280, 10)  # GeoMX' demo network on 28x28 images

SIZES = st.lists(st.integers(1, 50_000), min_size=1, max_size=30).map(tuple)


def loads(slices: tuple[Slice, ...], servers: int) -> list[int]:
    held = Counter(dict.fromkeys(range(servers), 0))
    for piece in slices:
        held[piece.server] += piece.stop - piece.start
    return [held[server] for server in range(servers)]


@for_each("servers", [2, 4])
def test_the_demo_networks_bytes_are_within_5_percent_of_even(servers: int) -> None:
    held = loads(MultiGps(MultiGps.Options()).slices(DEMO_CNN, servers), servers)
    assert max(held) * servers <= 1.05 * sum(DEMO_CNN)
    assert min(held) * servers >= 0.95 * sum(DEMO_CNN)


def test_geomx_rule_is_as_uneven_as_the_original() -> None:
    """One server of two gets 178 320 of 178 762 elements: with two servers the rule is the parity of the index."""
    assert loads(Hashed(Hashed.Options()).slices(DEMO_CNN, 2), 2) == [178_320, 442]


@given(SIZES, st.integers(2, 8), st.integers(1, 60_000))
def test_balanced_is_as_level_as_uncut_tensors_allow(sizes: tuple[int, ...], servers: int, bound: int) -> None:
    """Nobody is above the mean by more than the largest tensor that may not be cut."""
    held = loads(MultiGps(MultiGps.Options(bound)).slices(sizes, servers), servers)
    largest = max((size for size in sizes if size < bound), default=0)
    assert max(held) <= sum(sizes) / servers + max(largest, 1)


def test_even_cuts_where_the_parameter_server_does() -> None:
    for shard in (MultiGps(MultiGps.Options(1_000_000, "even")), Hashed(Hashed.Options(1_000_000))):

        def cuts(size: int, servers: int, shard: Hashed | MultiGps = shard) -> list[int]:
            return [piece.stop - piece.start for piece in shard.slices((size,), servers)]

        assert cuts(1_000_001, 2) == [500_001, 500_000]
        assert cuts(1_000_001, 3) == [333_334, 333_333, 333_334]
        assert cuts(999_999, 3) == [999_999]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=8), st.integers(0, 5000))
def test_filling_makes_level(levels: list[int], size: int) -> None:
    parts = filling(levels, size)
    after = [level + part for level, part in zip(levels, parts, strict=True)]
    assert sum(parts) == size and min(parts) >= 0
    raised = [level for level, part in zip(after, parts, strict=True) if part]
    assert not raised or max(raised) - min(after) <= 1


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(1, 20))
def test_equal_pieces_cover_each_key(sizes: list[int], elements: int) -> None:
    whole = Hashed(Hashed.Options()).slices(tuple(sizes), 1)
    cut = alike(whole, elements)
    assert [piece.wire_key for piece in cut] == list(range(len(cut)))
    for key, size in enumerate(sizes):
        pieces = [piece for piece in cut if piece.key == key]
        parts = [piece.stop - piece.start for piece in pieces]
        ends = [0, *(piece.stop for piece in pieces)]
        assert [piece.start for piece in pieces] == ends[:-1] and ends[-1] == size
        if size:
            assert min(parts) > 0 and max(parts) - min(parts) <= 1
            assert max(parts) <= 1 + 1.5 * elements and (len(parts) == 1 or min(parts) >= elements / 1.5 - 1)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=6), st.integers(1, 3))
def test_cuts_of_tables_are_at_rows(tables: list[tuple[int, int]], servers: int) -> None:
    """Whatever was cut how: each element stays in one slice, and no row is in two."""
    sizes, widths = tuple(rows * width for rows, width in tables), {key: width for key, (_, width) in enumerate(tables)}
    slices = sliced(MultiGps(MultiGps.Options(bound=5, rule="even")).slices(sizes, servers), 7)
    cut = by_rows(slices, widths)
    assert [piece.wire_key for piece in cut] == list(range(len(cut)))
    for key, size in enumerate(sizes):
        pieces = sorted((piece.start, piece.stop) for piece in cut if piece.key == key)
        assert [start for start, _ in pieces] == [0, *(stop for _, stop in pieces[:-1])] and pieces[-1][1] == size
        assert all(stop % widths[key] == 0 and stop > start for start, stop in pieces)
    assert by_rows(slices, {}) == slices
