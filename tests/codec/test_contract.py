"""What the shipped codecs promise beyond their contract: exactness, and full sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.options import CODECS
from testbed.codec.table import make_codec
from testbed.testing.codec import KEY, SIZES, bytes_of, layout, numbers
from tests.for_each import for_each

Make = Callable[[], Codec]
SPARSE = {"ratio": 0.05, "bound": 2}
CASES: dict[str, Make] = {
    "none": lambda: make_codec("none", {}),
    "fp16": lambda: make_codec("fp16", {}),
    "twobit": lambda: make_codec("twobit", {"threshold": 0.25}),
    **{
        " ".join([kind, *map(str, options.values())]): lambda kind=kind, options=options: make_codec(  # type: ignore[misc]
            kind, SPARSE | options, 2, 3, 7
        )
        for kind, options in [
            ("bisparse", {}), ("bisparse", {"padded": True}), ("bisparse", {"pull": "sparse-sum"}),
            ("bisparse", {"pull": "dense"}), ("dgc", {"stage_rounds": 2, "warmup_stages": 2, "clip_norm": 1.0}),
            ("topk", {}), ("randomk", {}), ("mstopk", {}), ("mstopk", {"selector": "exact"}),
        ]
    },
    "bisparse by default": lambda: make_codec("bisparse", {}),
    "dgc by default": lambda: make_codec("dgc", {}),
    "mpq on tier 1": lambda: make_codec("mpq", {}, tier=1),
    "mpq on tier 2": lambda: make_codec("mpq", {}, tier=2),
}  # fmt: skip
ROUNDS_VALUES = ("fp16", "mpq on tier 1", "mpq on tier 2", "bisparse sparse-sum")  # float16, or sums of gradients only
EXACT_DOWN = ("none", "twobit", "bisparse dense")


def send_down(server: Codec, child: Codec, value: Tensor) -> Tensor:
    return child.decode_value(KEY, server.encode_value(KEY, value), len(value))


def connected(make: Make, size: int) -> tuple[Codec, Codec]:
    server, child = make(), make()
    for end in (server, child):
        end.begin(KEY, numbers(size, 99))
    return server, child


@for_each("case", CASES)
def test_first_payloads_and_shapes_have_the_full_size(case: str) -> None:
    """A modelled run has the bytes of a real one whose tensors have no zeros."""
    for size in SIZES:
        real, shapes = CASES[case](), CASES[case]()
        for seed in range(3):
            honest = real.encode(KEY, numbers(size, seed))
            assert layout(shapes.encode(KEY, torch.empty(size, device="meta"))) == layout(honest)


def test_none_sends_the_numbers_themselves() -> None:
    for size in SIZES:
        assert torch.equal(CASES["none"]().decode(KEY, CASES["none"]().encode(KEY, numbers(size)), size), numbers(size))


@for_each("case", EXACT_DOWN)
def test_values_arrive_exactly_at_once(case: str) -> None:
    for size in SIZES:
        assert torch.equal(send_down(*connected(CASES[case], size), numbers(size)), numbers(size))


@for_each("contributors", [3, None])
def test_sparse_sums_arrive_exactly(contributors: int | None) -> None:
    def make() -> Codec:
        return make_codec("bisparse", SPARSE | {"pull": "sparse-sum"}, 2, contributors, 7)

    for size in SIZES:
        each = [make().decode(KEY, make().encode(KEY, numbers(size, party)), size) for party in range(3)]
        value = torch.stack(each).sum(0) if contributors else numbers(size)
        assert torch.equal(send_down(*connected(make, size), value), value)


@for_each("case", [case for case in CASES if case not in ROUNDS_VALUES])
def test_a_value_that_stays_arrives_to_the_bit(case: str) -> None:
    for size in SIZES:
        ends, value = connected(CASES[case], size), numbers(size)
        assert any(torch.equal(send_down(*ends, value), value) for _ in range(600)), f"{size} elements"


@for_each("kind", CODECS)
def test_every_codec_of_the_table_can_be_made_for_both_tiers(kind: str) -> None:
    options: dict[str, Any] = {}
    assert all(bytes_of(make_codec(kind, options, tier).encode(KEY, numbers(5000))) > 0 for tier in (1, 2))
