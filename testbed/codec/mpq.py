"""MPQ, mixed-precision quantisation (GeoMX): small keys in float16 on both tiers; large keys float32, and Bi-Sparse on
tier 2, where it pays. One rule (``sparse.is_large``) decides at both ends and on both tiers what is large.
"""

from __future__ import annotations

from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.bisparse import BiSparseCodec
from testbed.codec.context import CodecContext
from testbed.codec.fp16 import Fp16Codec
from testbed.codec.none import NoneCodec
from testbed.codec.options import Fp16Options, MpqOptions, NoneOptions
from testbed.codec.sparse import is_large


class MpqCodec(Codec):
    """Hands each key to the codec for its size."""

    def __init__(self, options: MpqOptions, at: CodecContext) -> None:
        self._bound = options.bound
        self._small: Codec = Fp16Codec(Fp16Options())
        self._large: Codec = BiSparseCodec(options, at) if at.tier == 2 else NoneCodec(NoneOptions())

    def _for(self, size: int) -> Codec:
        return self._large if is_large(size, self._bound) else self._small

    def begin(self, wire_key: int, value: Tensor) -> None:
        self._for(value.numel()).begin(wire_key, value)

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return self._for(tensor.numel()).encode(wire_key, tensor)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return self._for(size).decode(wire_key, parts, size)

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        return self._for(value.numel()).encode_value(wire_key, value)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return self._for(size).decode_value(wire_key, parts, size)

    def encoded_bytes(self, size: int) -> int:
        return self._for(size).encoded_bytes(size)

    def value_bytes(self, size: int) -> int:
        return self._for(size).value_bytes(size)
