"""What the shipped codecs promise beyond their contract: full sizes, and values to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.table import make_codec
from testbed.testing.codec import KEY, SIZES, layout, numbers
from tests.for_each import for_each

Make = Callable[[], Codec]
SPARSE = {"ratio": 0.05, "bound": 2}
ROUNDING: list[tuple[str, dict[str, Any], int]] = [  # values travel as float16, or are sums of gradients
    ("fp16", {}, 2),
    ("mpq", {}, 1),
    ("mpq", {}, 2),
    ("bisparse", {**SPARSE, "pull": "sparse-sum"}, 2),
]
EXACT: list[tuple[str, dict[str, Any], int]] = [
    ("none", {}, 2),
    ("twobit", {"threshold": 0.25}, 2),
    ("bisparse", {}, 2),
    ("bisparse", SPARSE, 2),
    ("bisparse", {**SPARSE, "padded": True}, 2),
    ("bisparse", {**SPARSE, "pull": "dense"}, 2),
    ("dgc", {}, 2),
    ("dgc", {**SPARSE, "stage_rounds": 2, "warmup_stages": 2, "clip_norm": 1.0}, 2),
    ("topk", SPARSE, 2),
    ("randomk", SPARSE, 2),
    ("mstopk", SPARSE, 2),
    ("topk", {**SPARSE, "pull": "changed"}, 2),
    ("mstopk", {**SPARSE, "selector": "exact"}, 2),
]


def sent_down(make: Make, value: Tensor, rounds: int) -> bool:
    """Return whether a value arrives to the bit in one of the rounds in which it stays."""
    server, child = make(), make()
    for end in (server, child):
        end.begin(KEY, numbers(len(value), 99))
    arrived = (child.decode_value(KEY, server.encode_value(KEY, value), len(value)) for _ in range(rounds))
    return any(torch.equal(each, value) for each in arrived)


@for_each(("kind", "options", "tier"), [*ROUNDING, *EXACT])
def test_first_payloads_and_shapes_have_the_full_size(kind: str, options: dict[str, Any], tier: int) -> None:
    """A modelled run has the bytes of a real one whose tensors have no zeros."""
    for size in SIZES:
        real, shapes = (make_codec(kind, options, tier, 3, 7) for _ in range(2))
        for seed in range(3):
            honest = real.encode(KEY, numbers(size, seed))
            assert layout(shapes.encode(KEY, torch.empty(size, device="meta"))) == layout(honest)


@for_each(("kind", "options", "tier"), EXACT)
def test_a_value_that_stays_arrives_to_the_bit(kind: str, options: dict[str, Any], tier: int) -> None:
    for size in SIZES:
        assert sent_down(lambda: make_codec(kind, options, tier, 3, 7), numbers(size), rounds=600), f"{size} elements"


@for_each("contributors", [3, None])
def test_sparse_sums_arrive_exactly(contributors: int | None) -> None:
    def make() -> Codec:
        return make_codec("bisparse", SPARSE | {"pull": "sparse-sum"}, 2, contributors, 7)

    for size in SIZES:
        each = [make().decode(KEY, make().encode(KEY, numbers(size, party)), size) for party in range(3)]
        assert sent_down(make, torch.stack(each).sum(0) if contributors else numbers(size), rounds=1)
