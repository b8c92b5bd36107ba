"""Deep Gradient Compression (Lin, Han, Mao, Wang, Dally, ICLR 2018): Bi-Sparse with warm-up and clipping.

Local clipping: N contributors, each with its norm held to clip_norm/√N, sum up to about clip_norm. Key by key, as in
the authors' code, since a codec sees one key at a time.
"""

from __future__ import annotations

import math

from testbed.codec.context import CodecContext
from testbed.codec.memory import momentum_corrected
from testbed.codec.options import DgcOptions
from testbed.codec.pull import make_pull
from testbed.codec.push import SparsePush
from testbed.codec.schedule import WarmUp
from testbed.codec.selectors.sweep import SampleAndSweep
from testbed.codec.sparse import SparseCodec


class DgcCodec(SparseCodec):
    """Momentum-corrected top-k with a warm-up of the ratio and local gradient clipping."""

    def __init__(self, options: DgcOptions, at: CodecContext) -> None:
        schedule = WarmUp(options.ratio, options.warmup_stages, options.stage_rounds)
        memory = momentum_corrected(SampleAndSweep(at.seed), options.momentum)
        max_norm = options.clip_norm / math.sqrt(at.contributors or 1) if options.clip_norm else math.inf
        push = SparsePush(schedule, memory, options.padded, max_norm)
        super().__init__(options.bound, push, make_pull(options, schedule.highest, at))
