from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.options import CODECS
from testbed.codec.table import make_codec
from tests.contract.codec import KEY, CodecContract, numbers

SMALL_BOUND = 2


def sum_of_contributions(make: Callable[[], Codec], size: int, seed: int = 0, parties: int = 3) -> Tensor:
    gradients = [numbers(size, seed * parties + party) for party in range(parties)]
    return torch.stack([make().decode(KEY, make().encode(KEY, gradient), size) for gradient in gradients]).sum(0)


class TestNone(CodecContract):
    exact_up = exact_down = True
    checks_finite = False

    def make(self) -> Codec:
        return make_codec("none", {})


class TestFp16(CodecContract):
    settles = False

    def make(self) -> Codec:
        return make_codec("fp16", {})


class TestTwoBit(CodecContract):
    exact_down = True

    def make(self) -> Codec:
        return make_codec("twobit", {"threshold": 0.25})


class _Sparse(CodecContract):
    kind: str
    options: dict[str, Any] = {}
    contributors: int | None = 3

    def make(self) -> Codec:
        return make_codec(self.kind, {"ratio": 0.05, "bound": SMALL_BOUND} | self.options, 2, self.contributors, 7)


class TestBiSparse(_Sparse):
    kind = "bisparse"


class TestBiSparseDefaults(CodecContract):
    def make(self) -> Codec:
        return make_codec("bisparse", {})


class TestBiSparsePadded(_Sparse):
    kind = "bisparse"
    options = {"padded": True}


class TestBiSparseSum(_Sparse):
    kind = "bisparse"
    options = {"pull": "sparse-sum"}
    exact_down = True

    def value(self, size: int, seed: int = 0) -> Tensor:
        """The sum of one contribution of each of three parties."""
        return sum_of_contributions(self.make, size, seed)


class TestBiSparseSumPadded(TestBiSparseSum):
    options = {"pull": "sparse-sum", "padded": True}


class TestBiSparseSumOfUnknownContributors(_Sparse):
    kind = "bisparse"
    options = {"pull": "sparse-sum"}
    contributors = None
    exact_down = True


class TestBiSparseDense(_Sparse):
    kind = "bisparse"
    options = {"pull": "dense"}
    exact_down = True


class TestDgc(_Sparse):
    kind = "dgc"
    options = {"stage_rounds": 2, "warmup_stages": 2, "clip_norm": 1.0}


class TestDgcDefaults(CodecContract):
    def make(self) -> Codec:
        return make_codec("dgc", {})


class TestTopK(_Sparse):
    kind = "topk"


class TestRandomK(_Sparse):
    kind = "randomk"
    draws_by_chance = True


class TestMsTopK(_Sparse):
    kind = "mstopk"


class TestMsTopKPublished(_Sparse):
    kind = "mstopk"
    options = {"selector": "published"}
    draws_by_chance = True


class TestMpqTier1(CodecContract):
    settles = False
    checks_finite = False  # a large key is sent as it is, and nothing is remembered

    def make(self) -> Codec:
        return make_codec("mpq", {}, tier=1)


class TestMpqTier2(CodecContract):
    settles = False

    def make(self) -> Codec:
        return make_codec("mpq", {}, tier=2)


@pytest.mark.parametrize("kind", CODECS)
def test_every_codec_of_the_table_can_be_made_for_both_tiers(kind: str) -> None:
    assert all(make_codec(kind, {}, tier).encoded_bytes(5000) > 0 for tier in (1, 2))
