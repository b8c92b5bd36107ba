from __future__ import annotations

import pytest
import torch
from torch import Tensor

from testbed.codec import pairs
from testbed.codec.pairs import entries, words
from tests.for_each import for_each

SIZE, MOST = 100, 4


def payload(*indices: int, dtype: torch.dtype = torch.int32) -> tuple[Tensor, Tensor]:
    return torch.arange(1.0, 1 + len(indices)), torch.tensor(indices, dtype=dtype)


@for_each("indices", [(), (0,), (99,), (0, 1, 98, 99)])
def test_what_is_packed_is_unpacked(indices: tuple[int, ...]) -> None:
    values, positions = payload(*indices, dtype=torch.int64)
    unpacked = pairs.unpack(pairs.pack(positions, values), SIZE, MOST)
    assert unpacked[0].tolist() == list(indices)
    assert torch.equal(unpacked[1], values)
    dense = pairs.scatter(*unpacked, SIZE)
    assert dense.nonzero().view(-1).tolist() == list(indices)


def test_indices_are_exact_beyond_two_to_the_24() -> None:
    values, positions = payload(2**24 + 1, 2**24 + 3, 2**24 + 10, dtype=torch.int64)
    assert pairs.unpack(pairs.pack(positions, values), 2**24 + 11, MOST)[0].equal(positions.int())


@for_each(
    ("parts", "reason"),
    [
        (payload(0, 100), "indices from 0 to 100 are outside of 100 elements"),
        (payload(-1, 5), "indices from -1 to 5 are outside"),
        (payload(3, 3), "do not increase strictly"),
        (payload(5, 4, 6), "do not increase strictly"),
        (payload(5, 400, 6), "do not increase strictly"),
        (payload(0, 1, 2, 3, 4), "5 entries, at most 4 were expected"),
        (payload(1, 2, dtype=torch.int64), "int32 indices, got torch.float32 and torch.int64"),
        ((torch.ones(2), payload(1)[1]), "not one list each"),
        ((torch.ones(1, 1), torch.ones(1, 1, dtype=torch.int32)), "not one list each"),
        ((torch.ones(2).half(), payload(1, 2)[1]), "expected float32 values"),
        ((torch.ones(2),), "expected 2 parts, got 1"),
        ((*payload(1), torch.zeros(1)), "expected 2 parts, got 3"),
    ],
)
def test_what_cannot_have_been_packed_is_refused(parts: tuple[Tensor, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        pairs.unpack(parts, SIZE, MOST)


def test_filler_has_the_length_that_is_missing() -> None:
    values, positions = payload(1, 2, 3, dtype=torch.int64)
    parts = pairs.pack(positions, values, words=9)
    assert sum(part.nbytes for part in parts) == 36
    assert pairs.unpack(parts, SIZE, MOST, words=9)[0].tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="expected 3 words of filler"):
        pairs.unpack((*parts[:2], torch.zeros(4, dtype=torch.int32)), SIZE, MOST, words=9)


def test_shares_of_elements_are_not_lost_to_rounding() -> None:
    assert 0.29 * 100 < 29
    assert [entries(100, 0.29), entries(131_072, 0.01), entries(5, 0.01)] == [29, 1310, 1]
    assert [words(131_072, 0.01), words(5, 0.01)] == [2621, 2]
