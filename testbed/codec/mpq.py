"""MPQ, mixed-precision quantisation (GeoMX): small keys in float16 on both tiers; large keys float32, and Bi-Sparse on
tier 2, where it pays. One rule (``sparse.is_large``) decides at both ends and on both tiers what is large.
"""

from __future__ import annotations

from testbed.codec.context import CodecContext
from testbed.codec.fp16 import Fp16Codec
from testbed.codec.none import NoneCodec
from testbed.codec.options import Fp16Options, MpqOptions, NoneOptions
from testbed.codec.sparse import BySize, momentum_corrected


def mpq(options: MpqOptions, at: CodecContext) -> BySize:
    """Return the codec of one tier. Within Bi-Sparse no key is below the bound."""
    large = momentum_corrected(options, at) if at.tier == 2 else NoneCodec(NoneOptions())
    return BySize(options.bound, Fp16Codec(Fp16Options()), large)
