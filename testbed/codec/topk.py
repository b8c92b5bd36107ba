"""Top-k with error feedback by different selectors, without momentum correction: MSTopK and the two baselines.

topk: exact. randomk: random. mstopk: the threshold search of Shi et al. (MLSys 2021), as published or repaired.
"""

from __future__ import annotations

from testbed.codec.context import CodecContext
from testbed.codec.memory import MakeMemory, exact_feedback, feedback
from testbed.codec.options import MsTopKOptions, RandomKOptions, SparseOptions, TopKOptions
from testbed.codec.pull import make_pull
from testbed.codec.push import SparsePush
from testbed.codec.schedule import ConstantRatio
from testbed.codec.selectors.bisection import Bisection, RandomK
from testbed.codec.selectors.mstopk import PublishedMsTopk
from testbed.codec.selectors.sweep import SampleAndSweep
from testbed.codec.sparse import SparseCodec


class _FeedbackCodec(SparseCodec):
    def __init__(self, options: SparseOptions, at: CodecContext, memory: MakeMemory) -> None:
        push = SparsePush(ConstantRatio(options.ratio), memory, options.padded)
        super().__init__(options.bound, push, make_pull(options, options.ratio, at))


class TopKCodec(_FeedbackCodec):
    """The largest elements (sparsified SGD with memory, Stich et al., 2018)."""

    def __init__(self, options: TopKOptions, at: CodecContext) -> None:
        super().__init__(options, at, exact_feedback(SampleAndSweep(at.seed)))


class RandomKCodec(_FeedbackCodec):
    """Randomly drawn elements."""

    def __init__(self, options: RandomKOptions, at: CodecContext) -> None:
        super().__init__(options, at, feedback(RandomK(at.seed)))


class MsTopKCodec(_FeedbackCodec):
    """The elements that MSTopK selects; by default the exact top-k."""

    def __init__(self, options: MsTopKOptions, at: CodecContext) -> None:
        published = options.selector == "published"
        memory = feedback(PublishedMsTopk(at.seed, options.samplings)) if published else exact_feedback(Bisection())
        super().__init__(options, at, memory)
