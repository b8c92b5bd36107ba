"""The sparse codecs: top-k, with or without momentum correction, for pushes; ``pull`` says how values come back.

bisparse  GeoMX, INET-RC; pushes use DGC's momentum correction: u ← m·u + g; v ← v + u; the ⌊ρn⌋ entries with the
          largest |v| are sent, and cleared in u and v. GeoMX estimates a threshold from a small sample at fixed
          positions and sends the first entries that reach it; this file sends exactly the largest
dgc       Lin, Han, Mao, Wang, Dally, Deep Gradient Compression, ICLR 2018: Bi-Sparse with warm-up and local clipping.
          N contributors, each with its norm held to clip_norm/√N, sum up to about clip_norm; key by key, as in the
          authors' code
topk      the largest elements (sparsified SGD with memory, Stich et al., 2018)
randomk   random elements
mstopk    Shi et al. (MLSys 2021), who find a threshold by bisection; with ``selector: exact`` the same as ``topk``
"""

from __future__ import annotations

import math

from torch import Tensor

from testbed.codec import pairs
from testbed.codec.base import Codec
from testbed.codec.context import CodecContext
from testbed.codec.fp16 import Fp16Codec
from testbed.codec.memory import Memories, ResidualMemory, take_finite
from testbed.codec.none import NoneCodec
from testbed.codec.options import (
    BiSparseOptions,
    DgcOptions,
    Fp16Options,
    MpqOptions,
    MsTopKOptions,
    NoneOptions,
    RandomKOptions,
    SparseOptions,
    TopKOptions,
)
from testbed.codec.over import CodecOver
from testbed.codec.pairs import entries
from testbed.codec.pull import PullingCodec, make_pull
from testbed.codec.selectors.chance import RandomK
from testbed.codec.selectors.mstopk import PublishedMsTopk
from testbed.codec.selectors.sweep import SampleAndSweep
from testbed.state import PartsByKey

MOST = 0.5  # pairs for more than half of the elements would be larger than the tensor


class WarmUp:
    """DGC's exponential warm-up (Lin et al., 2018, section 3.3): ratio^((s+1)/(stages+1)) in stage s, then ratio."""

    def __init__(self, ratio: float, stages: int = 0, stage_rounds: int = 1) -> None:
        self._ratio = ratio
        self._stages = stages
        self._stage_rounds = stage_rounds
        self.highest = self.ratio(0)

    def ratio(self, round_: int) -> float:
        """Return the share of elements to send in round ``round_`` of a key, counted from 0."""
        stage = min(round_ // self._stage_rounds, self._stages)
        return min(MOST, float(self._ratio ** ((stage + 1) / (self._stages + 1))))


class LargeKeys(PullingCodec):
    """Up: add the gradient to the residual, and send the chosen entries. Down: see ``options.pull``.

    ``max_norm``: gradients with a larger Euclidean norm are scaled down to it.
    """

    remembers = ("_rounds", "_share", "memories", "_make_memory", "_pull")

    def __init__(
        self,
        options: SparseOptions,
        at: CodecContext,
        memory: Memories,
        schedule: WarmUp | None = None,
        max_norm: float = math.inf,
    ) -> None:
        self._schedule = schedule or WarmUp(options.ratio)
        self._make_memory = memory
        self._padded = options.padded
        self._max_norm = max_norm
        self._share = 0.0  # set by ``adjust``; 0: use the schedule
        self._pull = make_pull(options, self._schedule.highest, at)
        self.memories: PartsByKey[int, ResidualMemory] = PartsByKey()  # each made when its key is first encoded
        self._rounds: dict[int, int] = {}

    def adjust(self, share: float) -> None:
        self._share = min(share, MOST)

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        """Raise ``NonFiniteNumbers`` for a NaN or infinity, and from then on at every call for this key: the sweep that
        finds a NaN has already added it to the residual.
        """
        size = tensor.numel()
        round_ = self._rounds.get(wire_key, 0)
        count = entries(size, self._share or self._schedule.ratio(round_))
        if tensor.is_meta:
            self._rounds[wire_key] = round_ + 1
            return pairs.shapes(count, self._words(size))
        if wire_key not in self.memories:
            self.memories[wire_key] = self._make_memory(size, tensor.device, wire_key)
        memory = self.memories[wire_key]
        gradient = _clipped(tensor, self._max_norm)
        indices, values = take_finite(memory, wire_key, gradient, count)
        self._rounds[wire_key] = round_ + 1
        return pairs.pack(indices, values, self._words(size))

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        most = entries(size, MOST)
        indices, values = pairs.unpack(parts, size, most, self._words(size))
        self._pull.on_contribution(wire_key, values.numel())
        return pairs.scatter(indices, values, size)

    def _words(self, size: int) -> int | None:
        return pairs.words(size, self._schedule.highest) if self._padded else None


def _clipped(gradient: Tensor, max_norm: float) -> Tensor:
    if max_norm == math.inf:
        return gradient
    norm = float(gradient.double().norm())
    return gradient * (max_norm / norm) if norm > max_norm else gradient  # unchanged if the norm is NaN


class BySize(CodecOver):
    """Keys with at least ``bound`` elements use the codec ``large``, the others ``small``."""

    remembers = ("_small", "large")

    def __init__(self, bound: int, small: Codec, large: Codec) -> None:
        super().__init__(large)
        self._bound = bound
        self._small = small
        self.large = large

    def _for(self, size: int) -> Codec:
        return self.large if size >= self._bound else self._small


def _momentum(options: BiSparseOptions, at: CodecContext) -> float | None:
    return None if at.changes else options.momentum


def momentum_corrected(options: BiSparseOptions, at: CodecContext) -> LargeKeys:
    """Return the codec of large keys that Bi-Sparse and MPQ share."""
    return LargeKeys(options, at, Memories(SampleAndSweep(at.seed), _momentum(options, at)))


def bisparse(options: BiSparseOptions, at: CodecContext) -> BySize:
    return _with_exact_small_keys(options, momentum_corrected(options, at))


def dgc(options: DgcOptions, at: CodecContext) -> BySize:
    schedule = WarmUp(options.ratio, options.warmup_stages, options.stage_rounds)
    memory = Memories(SampleAndSweep(at.seed), _momentum(options, at))
    # clipping a change of a model would lose the clipped part for good: the next change begins at newer values
    clips = options.clip_norm > 0 and not at.changes
    max_norm = options.clip_norm / math.sqrt(at.contributors or 1) if clips else math.inf
    return _with_exact_small_keys(options, LargeKeys(options, at, memory, schedule, max_norm))


def topk(options: TopKOptions, at: CodecContext) -> BySize:
    return _with_exact_small_keys(options, LargeKeys(options, at, Memories(SampleAndSweep(at.seed))))


def randomk(options: RandomKOptions, at: CodecContext) -> BySize:
    return _with_exact_small_keys(options, LargeKeys(options, at, Memories(RandomK(at.seed, at.sender))))


def mstopk(options: MsTopKOptions, at: CodecContext) -> BySize:
    if options.selector == "exact":
        return _with_exact_small_keys(options, LargeKeys(options, at, Memories(SampleAndSweep(at.seed))))
    large = LargeKeys(options, at, Memories(PublishedMsTopk(at.seed, at.sender, options.samplings)))
    large.cost_name = "mstopk published"  # this search has other costs than the exact one
    return _with_exact_small_keys(options, large)


def _with_exact_small_keys(options: SparseOptions, large: LargeKeys) -> BySize:
    return BySize(options.bound, NoneCodec(NoneOptions()), large)


def mpq(options: MpqOptions, at: CodecContext) -> BySize:
    """MPQ, mixed-precision quantisation (GeoMX): small keys travel as float16 on both tiers.

    Large keys travel as float32 on tier 1, and by Bi-Sparse on tier 2.
    """
    large = momentum_corrected(options, at) if at.tier == 2 else NoneCodec(NoneOptions())
    return BySize(options.bound, Fp16Codec(Fp16Options()), large)
