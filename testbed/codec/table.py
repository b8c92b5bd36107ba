"""Makes codecs by name. This module imports torch, and ``options`` does not; so they are separate."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from testbed.codec.base import Codec, MakeCodec
from testbed.codec.context import CodecContext
from testbed.codec.demo import DeMo
from testbed.codec.fp16 import Fp16Codec
from testbed.codec.none import NoneCodec
from testbed.codec.options import CODECS
from testbed.codec.powersgd import PowerSgd
from testbed.codec.sparse import bisparse, dgc, mpq, mstopk, randomk, topk
from testbed.codec.sparseloco import SparseLoCo
from testbed.codec.subspace import Subspace
from testbed.codec.twobit import TwoBitCodec
from testbed.key_shape import KeyShape

_MAKERS: dict[str, MakeCodec] = {
    "none": lambda options, at: NoneCodec(options),
    "fp16": lambda options, at: Fp16Codec(options),
    "twobit": lambda options, at: TwoBitCodec(options),
    "bisparse": bisparse,
    "dgc": dgc,
    "mpq": mpq,
    "mstopk": mstopk,
    "topk": topk,
    "randomk": randomk,
    "sparseloco": SparseLoCo,
    "demo": DeMo,
    "powersgd": PowerSgd,
    "subspace": Subspace,
}


def make_codec(
    kind: str,
    options: dict[str, Any],
    tier: int = 2,
    contributors: int | None = None,
    seed: int = 0,
    changes: bool = False,
    sender: str = "",
) -> Codec:
    """Return a new codec with its own memory, for one connection of ``tier``.

    See ``CodecContext`` for the other parameters.
    """
    entry: Any = CODECS[kind]
    make: MakeCodec = _MAKERS.get(kind, entry)  # the class of a user's own codec is also its declaration
    codec = make(CODECS.options(kind, options), CodecContext(tier, contributors, seed, changes, sender))
    codec.cost_name = codec.cost_name or kind
    if kind not in _MAKERS:
        codec.outside = kind
    return codec


def payload_bytes(kind: str, options: dict[str, Any], shape: KeyShape, seed: int = 0) -> int:
    """Return the payload bytes of a tensor of this shape with this codec; the largest possible, if they vary."""
    codec = make_codec(kind, options, seed=seed, changes=True)
    if codec.by_shape:
        codec.declare(0, shape)
    return sum(part.nbytes for part in codec.encode(0, torch.empty(prod(shape.dimensions), device="meta")))
