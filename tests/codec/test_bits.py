"""Codecs that work in blocks give the bits of plain tensor operations, on numbers of every kind and at any size."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from testbed.codec import fourbit
from testbed.codec.blocks import BLOCK
from testbed.codec.options import TwoBitOptions
from testbed.codec.selectors.mstopk import PublishedMsTopk
from testbed.codec.selectors.sources import Feedback, Floats
from testbed.codec.twobit import TwoBitCodec
from tests.for_each import for_each

SIZES = (0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 33, 63, 999, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3)
SPECIAL = (0.0, -0.0, 1e-45, -1e-45, 1e-40, -1e-38, 3e38, -3e38)


def numbers(random: np.random.Generator, size: int, scale: float, *special: float) -> Tensor:
    """Normal numbers, a fifth of them replaced by special ones."""
    found = (random.standard_normal(size) * scale).astype(np.float32)
    replaced = random.random(size) < 0.2
    found[replaced] = random.choice(np.array([*SPECIAL, *special], np.float32), int(replaced.sum()))
    return torch.from_numpy(found)


def bits(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()


class PlainTwoBit:
    """``TwoBitCodec`` by its definition."""

    def __init__(self, threshold: float) -> None:
        self.threshold, self.residual = threshold, torch.empty(0)

    def encode(self, tensor: Tensor) -> Tensor:
        self.residual = tensor.clone() if not self.residual.numel() else self.residual.add_(tensor)
        positive, negative = self.residual >= self.threshold, self.residual <= -self.threshold
        self.residual.sub_(positive.float() - negative.float(), alpha=self.threshold)
        codes = torch.zeros(16 * -(-tensor.numel() // 16), dtype=torch.uint8)
        codes[: tensor.numel()] = positive * 0b11 + negative * 0b10
        quads = codes.view(-1, 4)
        return quads[:, 0] << 6 | quads[:, 1] << 4 | quads[:, 2] << 2 | quads[:, 3]

    def decode(self, packed: Tensor, size: int) -> Tensor:
        codes = torch.stack([packed >> shift & 3 for shift in (6, 4, 2, 0)], dim=1).reshape(-1)[:size]
        return torch.tensor([0.0, 0.0, -self.threshold, self.threshold])[codes.long()]


@for_each("size", [*SIZES][::2])
@for_each("threshold", [0.5, 0.1, 1e-3])
def test_two_bits(size: int, threshold: float) -> None:
    random = np.random.default_rng(size)
    codec, plain = TwoBitCodec(TwoBitOptions(threshold=threshold)), PlainTwoBit(threshold)
    at = np.float32(threshold)
    edges = [
        sign * edge
        for edge in (at, np.nextafter(at, np.float32(0)), np.nextafter(at, np.float32(9)))
        for sign in (1, -1)
    ]
    for _ in range(4):  # the residuals of numbers near the largest become infinite, and then not a number
        tensor = numbers(random, size, threshold, *map(float, edges))
        given = bits(tensor)
        (packed,) = codec.encode(7, tensor)
        residual = codec.state()["residuals/7"]
        assert bits(packed) == bits(plain.encode(tensor.clone()))
        assert bits(residual) == bits(plain.residual)
        assert bits(codec.decode(7, (packed,), size)) == bits(plain.decode(packed, size))
        assert bits(tensor) == given


def plain_four_bits(tensor: Tensor) -> tuple[Tensor, Tensor]:
    values = tensor.float()
    low, high = torch.aminmax(values)
    codes = torch.zeros(len(values) + len(values) % 2, dtype=torch.uint8)
    if high > low:
        part = 2 if (high - low).isinf() else 1  # twice the largest number is the widest range
        if high - low < 1e-30:  # 16 / range may exceed float32, but not float64
            values, low, high = values.double(), low.double(), high.double()
        shifted = values / part - low / part
        codes[: len(values)] = (shifted * (16 / (high / part - low / part))).floor_().clamp_(0, 15).to(torch.uint8)
    return codes[0::2] | (codes[1::2] << 4), torch.stack([low, high]).float()


def plain_centres(codes: Tensor, bounds: Tensor, size: int) -> Tensor:
    low, high = bounds
    both = torch.stack([codes & 0xF, codes >> 4], dim=1).reshape(-1)[:size]
    places = both.float() + 0.5
    if (high - low).isinf():
        return cast(Tensor, high * (places / 16) + low * (1 - places / 16))
    if high - low < 1e-30:
        return cast(Tensor, (places.double() * (high.double() - low.double()) / 16 + low.double()).float())
    return cast(Tensor, places * ((high - low) / 16) + low)


@for_each("size", [*SIZES[1:]][::2])
@for_each("kind", ["normal", "special", "tiny", "equal", "half"])
def test_four_bits(size: int, kind: str) -> None:
    random = np.random.default_rng(size)
    tensor = torch.from_numpy(random.standard_normal(size).astype(np.float32)) * (1e-41 if kind == "tiny" else 1.0)
    tensor = numbers(random, size, 1e30) if kind == "special" else tensor
    tensor = torch.full((size,), -0.0) if kind == "equal" else tensor
    tensor = tensor.half() if kind == "half" else tensor
    codes, bounds = fourbit.encode(tensor)
    plain_codes, plain_bounds = plain_four_bits(tensor)
    assert bits(codes) == bits(plain_codes)
    assert bits(bounds) == bits(plain_bounds)
    assert bits(fourbit.decode(codes, bounds, size)) == bits(plain_centres(codes, bounds, size))


class PlainMsTopk(PublishedMsTopk):
    """Counts all magnitudes at each threshold."""

    def _search(self, magnitudes: Floats, k: int) -> Any:
        best = super()._search(magnitudes[:0], k)  # of nothing: nothing found
        best.lower_count = magnitudes.size
        mean, largest = float(magnitudes.mean()), float(magnitudes.max(initial=0.0))
        left, right = 0.0, 1.0
        for _ in range(self._samplings):
            share = (left + right) / 2
            threshold = mean + share * (largest - mean)
            count = int(np.count_nonzero(magnitudes >= threshold))
            if count <= k:
                right = share
                if count > best.upper_count:
                    best.upper, best.upper_count = threshold, count
            else:
                left = share
                if count < best.lower_count:
                    best.lower, best.lower_count = threshold, count
        return best


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value encountered", "ignore:overflow")
@for_each("size", [*[size for size in SIZES if size]][::2])
@for_each("kind", ["normal", "special", "cauchy", "ties", "outlier"])
def test_published_mstopk(size: int, kind: str) -> None:
    random = np.random.default_rng(size)
    drawn = random.standard_cauchy(size) if kind == "cauchy" else random.standard_normal(size)
    found = np.round(drawn, 1).astype(np.float32) if kind == "ties" else drawn.astype(np.float32)
    found = numbers(random, size, 1e-3).numpy() / np.float32(4) if kind == "special" else found
    if kind == "outlier":
        found[0] = 1e30
    for k in {0, 1, size // 100, size // 3, size}:
        chosen = [
            kind_of(size)(Feedback(np.zeros(size, np.float32), found), k) for kind_of in (PublishedMsTopk, PlainMsTopk)
        ]
        assert np.array_equal(*chosen)


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
