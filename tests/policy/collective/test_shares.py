"""Shares of the optimizer's work: all of it once, even by bytes, and when they pay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from testbed.policy.collective.shares import gather_s, saved_s, shares_of, work_bytes
from tests.policy.collective.cost import LinkCost

LAN = LinkCost(1e-4, 8 / 10e9)
WAN = LinkCost(0.045, 8 / 20e6)
RESNET = [9408, *[36_864] * 20, *[589_824] * 16, *[2_359_296] * 5, 2_048_000]
EMBEDDING = [23_000_000, *[768] * 100, *[2_359_296] * 30]


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=30), st.integers(1, 17))
def test_every_element_is_in_one_share_and_none_is_much_larger(sizes: list[int], ranks: int) -> None:
    shares = shares_of(sizes, ranks)
    assert len(shares) == ranks
    seen = sorted((p.key, p.start, p.stop) for share in shares for p in share)
    for key, size in enumerate(sizes):
        ends = [(start, stop) for k, start, stop in seen if k == key]
        assert [0, *(stop for _, stop in ends)] == [*(start for start, _ in ends), size]
    largest = max(sum(piece.size for piece in share) for share in shares)
    assert largest <= 2 * -(-sum(sizes) // ranks)


def test_by_bytes_and_not_by_tensors() -> None:
    """Most of a transformer is its embedding: one worker with it alone would have a quarter of everything to do."""
    shares = shares_of(EMBEDDING, 8)
    loads = [sum(piece.size for piece in share) for share in shares]
    assert max(loads) < 1.1 * sum(EMBEDDING) / 8
    assert max(EMBEDDING) > 1.9 * sum(EMBEDDING) / 8


def test_it_pays_inside_a_data_centre_and_never_across_a_wan() -> None:
    for kind in ("norms", "update"):
        assert saved_s(RESNET, 8, kind, WAN, 4e9, norms=True) < 0
    assert saved_s(RESNET, 8, "norms", LAN, 4e9, norms=True) > 0
    assert saved_s([100, 10], 8, "norms", LAN, 4e9, norms=True) < 0, "small models are not worth a message"
    assert saved_s(RESNET, 1, "norms", LAN, 4e9, norms=True) == 0
    assert saved_s(RESNET, 8, "norms", LAN, 4e9, norms=False) == 0, "only LARS takes norms"


def test_work_and_messages_add_up() -> None:
    sizes = [100] * 4
    assert work_bytes(sizes, 4, "replicated", norms=True) == 6 * 1600
    assert work_bytes(sizes, 4, "norms", norms=True) == 2 * 400 + 4 * 1600
    assert work_bytes(sizes, 4, "update", norms=True) == 6 * 400
    assert work_bytes(sizes, 4, "update", norms=False) == 4 * 400
    link = LinkCost(1.0, 0.001)
    assert gather_s(sizes, 4, "norms", link, norms=True) == 3 * (1 + 0.064)
    assert gather_s(sizes, 4, "update", link, norms=False) == 3 * (1 + 0.4)
