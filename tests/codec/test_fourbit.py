"""The 4-bit code of unimportant blocks: row 51 of the acceptance list."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from testbed.codec import fourbit
from tests.for_each import for_each


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=130))
def test_no_element_is_off_by_more_than_half_a_bin(values: list[float]) -> None:
    tensor = torch.tensor(values)
    codes, bounds = fourbit.encode(tensor)
    assert codes.nbytes == (len(values) + 1) // 2
    decoded = fourbit.decode(codes, bounds, len(values))
    half_a_bin = float(bounds[1] - bounds[0]) / 32
    assert (decoded - tensor).abs().max() <= half_a_bin * (1 + 1e-4) + 1e-6 * float(tensor.abs().max())


@for_each("size", [1, 2, 3, 16, 17])
def test_every_position_comes_back_as_itself(size: int) -> None:
    """The original gives an odd element the code of the odd element before it, and overflows at the maximum."""
    for position in range(size):
        tensor = torch.full((size,), -1.0)
        tensor[position] = 1.0
        decoded = fourbit.decode(*fourbit.encode(tensor), size)
        assert decoded.argmax() == position
        if size > 1:
            assert decoded[position] == pytest.approx(1.0, abs=2 / 32 + 1e-6)
            assert sorted(set(decoded.tolist())) == pytest.approx([-1 + 1 / 16, 1 - 1 / 16])


def test_the_widest_range_of_float32_comes_back_finite() -> None:
    largest = torch.finfo(torch.float32).max
    tensor = torch.tensor([-largest, largest / 100, largest, largest / 1.9])
    decoded = fourbit.decode(*fourbit.encode(tensor), 4)
    assert (decoded / largest).tolist() == pytest.approx([-15 / 16, 1 / 16, 15 / 16, 9 / 16])


def test_parts_of_another_size_are_refused() -> None:
    codes, bounds = fourbit.encode(torch.ones(8))
    with pytest.raises(ValueError, match="are not 9 elements"):
        fourbit.decode(codes, bounds, 9)
