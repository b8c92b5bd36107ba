"""GeoMX's observable behaviour, one test for each point, with byte counts of its demo CNN (28×28) to the byte.

GeoMX's Bi-Sparse payload has ⌊2ρn⌋ words, so one unused word where that is odd. ``padded`` sends as many; without it
payloads hold ⌊ρn⌋ pairs, and are shorter by 12 bytes up and 28 down for this model at ρ = 0.01.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.context import CodecContext
from testbed.codec.errors import NonFiniteNumbers, OutsideHalfPrecision
from testbed.codec.fp16 import Fp16Codec
from testbed.codec.options import BiSparseOptions, DgcOptions, Fp16Options, TopKOptions, TwoBitOptions
from testbed.codec.pairs import entries
from testbed.codec.sparse import BySize, LargeKeys, WarmUp, dgc, topk
from testbed.codec.sparse import bisparse as bisparse_codec
from testbed.codec.table import make_codec
from testbed.codec.twobit import TwoBitCodec
from testbed.testing.codec import bytes_of, layout, numbers
from tests.for_each import for_each

DEMO_CNN = (400, 16, 12800, 32, 131072, 256, 32768, 128, 1280, 10)
PARTIES = 2
GRADIENTS = {"pull": "sparse-sum", "padded": True}  # the demo: optimizer on the workers, fixed payload lengths


def push(codec: Codec, tensor: Tensor, key: int = 0) -> Tensor:
    return codec.decode(key, codec.encode(key, tensor), tensor.numel())


def plain_topk() -> Codec:
    return topk(TopKOptions(ratio=0.001), CodecContext())


def unsent(codec: Codec, key: int) -> Tensor:
    assert isinstance(codec, BySize) and isinstance(codec.large, LargeKeys)
    return codec.large.memories[key].state()["unsent"]


def bisparse(tier: int = 2, **options: object) -> BySize:
    return bisparse_codec(BiSparseOptions(**options), CodecContext(tier, PARTIES))  # type: ignore[arg-type]


# ---- bytes of one round of the demo CNN, for one party --------------------------------------------------------------


@for_each(
    ("kind", "options", "tier", "up", "down"),
    [
        ("none", {}, 1, 715_048, 715_048),
        ("none", {}, 2, 715_048, 715_048),
        ("fp16", {}, 1, 357_524, 357_524),
        ("fp16", {}, 2, 357_524, 357_524),
        ("twobit", {}, 2, 44_692, 715_048),
        ("bisparse", GRADIENTS, 2, 17_596, 31_828),
        ("mpq", GRADIENTS, 1, 713_364, 713_364),
        ("mpq", GRADIENTS, 2, 15_912, 30_144),
        ("bisparse", {"pull": "sparse-sum"}, 2, 17_596 - 12, 31_828 - 28),
        ("bisparse", {}, 2, 17_596 - 12, 17_596 - 12),
    ],
)
def test_bytes_of_the_demo_cnn(kind: str, options: dict[str, object], tier: int, up: int, down: int) -> None:
    server = make_codec(kind, options, tier, PARTIES)
    parties = [make_codec(kind, options, tier, PARTIES) for _ in range(PARTIES)]
    sent = [0] * PARTIES
    received = 0
    for key, size in enumerate(DEMO_CNN):
        server.begin(key, torch.zeros(size))
        total = torch.zeros(size)
        for party, codec in enumerate(parties):
            parts = codec.encode(key, disjoint(size, party))
            sent[party] += bytes_of(parts)
            total += codec.decode(key, parts, size)
        received += bytes_of(server.encode_value(key, total))
    assert sent == [up] * PARTIES
    assert received == down


def disjoint(size: int, party: int) -> Tensor:
    """Gradients whose largest entries lie apart, so that the union of supports is as large as it can be."""
    tensor = numbers(size, party) * 1e-3
    tensor[party::PARTIES] *= 1e4
    return tensor


# ---- row 33: two bits -----------------------------------------------------------------------------------------------


def test_two_bits_golden_bytes_and_residuals() -> None:
    codec, gradient = TwoBitCodec(TwoBitOptions(0.5)), torch.tensor([0.3, 0.3, -0.7, 0.9])
    for byte, decoded, residual in [
        (0x0B, [0.0, 0.0, -0.5, 0.5], [0.3, 0.3, -0.2, 0.4]),
        (0xFB, [0.5, 0.5, -0.5, 0.5], [0.1, 0.1, -0.4, 0.8]),
    ]:
        (packed,) = codec.encode(0, gradient)
        assert packed.tolist() == [byte, 0, 0, 0]
        assert codec.decode(0, (packed,), 4).tolist() == decoded
        assert codec.state()["residuals/0"].tolist() == pytest.approx(residual)


@for_each(("first", "size"), [(0b01000000, 4), (0b00000001, 4), (0b00000011, 3)])
def test_codes_that_are_never_sent_are_refused(first: int, size: int) -> None:
    with pytest.raises(ValueError):
        TwoBitCodec(TwoBitOptions()).decode(0, (torch.tensor([first, 0, 0, 0], dtype=torch.uint8),), size)


# ---- rows 34 to 38: the way up of Bi-Sparse -------------------------------------------------------------------------


@for_each("size", [1000, 1001, 12_800, 131_072, 300_001])
def test_large_keys_take_eight_bytes_an_entry(size: int) -> None:
    assert bytes_of(bisparse().encode(0, numbers(size))) <= 8 * int(0.01 * size)


def test_the_way_up_is_the_recursion_with_an_exact_choice() -> None:
    size, k, codec = 5003, 50, bisparse()
    velocity, total = np.zeros(size, np.float32), np.zeros(size, np.float32)
    for round_ in range(20):
        gradient = numbers(size, round_)
        velocity = velocity * np.float32(0.9) + gradient.numpy()
        total = total + velocity
        first = np.argsort(-np.abs(total), kind="stable")[:k]
        expected = np.zeros(size, np.float32)
        expected[first] = total[first]
        assert np.array_equal(push(codec, gradient).numpy(), expected)
        velocity[first], total[first] = 0, 0
        assert np.array_equal(unsent(codec, 0).numpy(), total)


# ---- rows 39 and 40: the way down, and several servers -------------------------------------------------------------


@for_each("size", [1000, 50_000])
def test_every_party_receives_exactly_the_sum(size: int) -> None:
    parties = [bisparse(pull="sparse-sum") for _ in range(PARTIES)]
    for round_ in range(5):
        contributions = [push(codec, numbers(size, round_ * 2 + party)) for party, codec in enumerate(parties)]
        total = contributions[0] + contributions[1]
        for codec in parties:
            parts = codec.encode_value(0, total)
            assert bytes_of(parts) <= 8 * int(0.01 * size * PARTIES)
            assert torch.equal(codec.decode_value(0, parts, size), total)


# ---- the way down for parameters ----------------------------------------------------------------------------------


def test_differences_are_late_but_never_lost() -> None:
    size, server, child = 2000, bisparse(pull_ratio=0.1), bisparse(pull_ratio=0.1)
    value = numbers(size)
    for end in (server, child):
        end.begin(0, value)
    held = value.clone()
    for round_ in range(8):
        value = value + 0.1 * numbers(size, round_)
        behind = (value - held).abs()
        arrived = child.decode_value(0, server.encode_value(0, value), size)
        changed = arrived != held
        assert int(changed.sum()) == 200
        assert torch.equal(arrived[changed], value[changed])  # to the last bit, not by adding up differences
        assert behind[changed].min() >= behind[~changed].max()
        held = arrived
    for _ in range(10):
        held = child.decode_value(0, server.encode_value(0, value), size)
    assert torch.equal(held, value)
    assert bytes_of(server.encode_value(0, value)) == 0


def test_differences_before_the_first_value_are_refused() -> None:
    server = bisparse()
    server.begin(0, numbers(2000))
    parts = server.encode_value(0, numbers(2000, 1))
    with pytest.raises(ValueError, match="changes of key 0 came before its first value"):
        bisparse().decode_value(0, parts, 2000)


# ---- rows 42 to 44: FP16, MPQ ---------------------------------------------------------------------------------------


def test_float16_arrives_within_half_a_step() -> None:
    tensor = numbers(10_000)
    assert ((push(Fp16Codec(Fp16Options()), tensor) - tensor).abs() <= tensor.abs() * 2**-11 + 2**-25).all()


def test_numbers_too_large_for_float16_are_refused_by_name() -> None:
    codec = Fp16Codec(Fp16Options())
    assert push(codec, torch.tensor([65_519.0, -65_519.0])).tolist() == [65_504.0, -65_504.0]
    with pytest.raises(OutsideHalfPrecision, match="2 elements of key 9 are outside the range of float16") as error:
        codec.encode(9, torch.tensor([1.0, -70_000.0, 65_520.0]))
    assert error.value.largest == 70_000.0


@for_each("size", [999, 1000, 1001])
@for_each("tier", [1, 2])
def test_mpq_ends_agree_on_both_sides_of_the_bound(size: int, tier: int) -> None:
    parts = make_codec("mpq", {}, tier).encode(0, numbers(size))
    large = [torch.float32] if tier == 1 else [torch.float32, torch.int32]
    assert [part.dtype for part in parts] == ([torch.float16] if size < 1000 else large)
    assert make_codec("mpq", {}, tier).decode(0, parts, size).shape == (size,)


# ---- DGC ----------------------------------------------------------------------------------------------------------


def test_dgc_warms_up_as_in_the_authors_code() -> None:
    schedule = WarmUp(0.001, stages=4, stage_rounds=10)
    stages = [schedule.ratio(round_) for round_ in (0, 9, 10, 20, 30, 40, 1000)]
    assert stages == pytest.approx([0.251, 0.251, 0.0631, 0.0158, 0.00398, 0.001, 0.001], rel=0.01)


@for_each("padded", [True, False])
def test_modelled_bytes_follow_a_warm_up_both_ways(padded: bool) -> None:
    """Disjoint contributions, so that the real sum has all the entries that a modelled one is taken to have."""
    options = {"ratio": 1e-4, "warmup_stages": 3, "stage_rounds": 2, "pull": "sparse-sum", "padded": padded}
    server, modelled, *parties = (make_codec("dgc", options, contributors=PARTIES) for _ in range(2 + PARTIES))
    size, sizes = 20_000, []
    for _ in range(10):
        up = [codec.encode(0, disjoint(size, party)) for party, codec in enumerate(parties)]
        down = server.encode_value(0, torch.stack([server.decode(0, parts, size) for parts in up]).sum(0))
        up_meta = modelled.encode(0, torch.empty(size, device="meta"))
        down_meta = modelled.encode_value(0, modelled.decode(0, up_meta, size))
        assert (layout(up_meta), layout(down_meta)) == (layout(up[0]), layout(down))
        sizes.append(bytes_of(down_meta))
    assert len(set(sizes)) == (1 if padded else 4)


def test_dgc_clips_to_the_share_of_each_contributor() -> None:
    codec = dgc(DgcOptions(clip_norm=2.0, warmup_stages=0), CodecContext(contributors=4))
    arrived, tensor = push(codec, numbers(1000)), numbers(1000)
    gathered = arrived + unsent(codec, 0)
    assert float(gathered.norm()) == pytest.approx(1.0, rel=1e-5)
    assert torch.allclose(gathered / gathered.norm(), tensor / tensor.norm())
    short = numbers(1000, 1) * 1e-4
    assert torch.equal(push(codec, short, 1) + unsent(codec, 1), short)


def test_dgc_clips_no_change_of_a_model() -> None:
    """The next change begins at newer values: what is cut off would be lost."""
    codec = dgc(DgcOptions(clip_norm=2.0, warmup_stages=0), CodecContext(contributors=4, changes=True))
    tensor = numbers(1000)
    assert torch.equal(push(codec, tensor) + unsent(codec, 0), tensor)


# ---- what all of them must do -------------------------------------------------------------------------------------


@for_each("kind", ["topk", "randomk", "mstopk"])
@for_each("size", [1000, 1001, 200_003])
def test_error_feedback_loses_nothing(kind: str, size: int) -> None:
    """Of every element: what has been sent and what is kept make up what was produced. Integers, so sums are exact."""
    codec = make_codec(kind, {"ratio": 0.02})
    produced, sent = torch.zeros(size), torch.zeros(size)
    for round_ in range(12):
        gradient = torch.randint(-9, 10, (size,), generator=torch.Generator().manual_seed(round_)).float()
        produced += gradient
        sent += push(codec, gradient)
        assert torch.equal(sent + unsent(codec, 0), produced)
    assert int(sent.count_nonzero()) >= entries(size, 0.02)


def test_a_residual_that_overflows_is_refused_by_name() -> None:
    codec = topk(TopKOptions(ratio=0.001), CodecContext())
    huge = torch.full((2000,), 3e38)
    codec.encode(5, huge)
    with pytest.raises(NonFiniteNumbers, match="accumulated gradient of key 5"):
        codec.encode(5, huge)


@for_each("make", [bisparse, lambda: dgc(DgcOptions(clip_norm=2.0), CodecContext()), plain_topk])
def test_after_a_bad_gradient_its_key_is_refused_and_no_other(make: Callable[[], Codec]) -> None:
    codec, bad = make(), numbers(2000)
    bad[[3, 4]] = torch.tensor([float("nan"), float("inf")])
    for gradient in (bad, numbers(2000)):
        with pytest.raises(NonFiniteNumbers, match="2 of 2000 elements of the accumulated gradient of key 5"):
            codec.encode(5, gradient)
    assert codec.encode(6, numbers(2000))


def test_a_bad_value_is_refused_before_the_mirror_moves() -> None:
    codec, value = bisparse(), numbers(2000)
    codec.begin(4, value)
    bad = value.clone()
    bad[0] = float("nan")
    with pytest.raises(NonFiniteNumbers, match="1 of 2000 elements of the change of the value of key 4"):
        codec.encode_value(4, bad)
    assert bytes_of(codec.encode_value(4, value)) == 0
