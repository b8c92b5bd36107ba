"""Bi-Sparse: sparse both ways (GeoMX, INET-RC; the way up is DGC's momentum correction, Lin et al., ICLR 2018).

u ← m·u + g; v ← v + u; the ⌊ρn⌋ entries with the largest |v| are sent, and cleared in u and v. GeoMX takes a threshold
from a small sample at fixed positions and keeps the first that pass; here the choice is exact.
"""

from __future__ import annotations

from testbed.codec.context import CodecContext
from testbed.codec.memory import momentum_corrected
from testbed.codec.options import BiSparseOptions
from testbed.codec.pull import make_pull
from testbed.codec.push import SparsePush
from testbed.codec.schedule import ConstantRatio
from testbed.codec.selectors.sweep import SampleAndSweep
from testbed.codec.sparse import SparseCodec


class BiSparseCodec(SparseCodec):
    """Momentum-corrected top-k up; down as ``options.pull`` says."""

    def __init__(self, options: BiSparseOptions, at: CodecContext) -> None:
        memory = momentum_corrected(SampleAndSweep(at.seed), options.momentum)
        push = SparsePush(ConstantRatio(options.ratio), memory, options.padded)
        super().__init__(options.bound, push, make_pull(options, options.ratio, at))
