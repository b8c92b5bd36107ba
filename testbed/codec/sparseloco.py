"""SparseLoCo sends the largest elements of every chunk as two-bit values, with a decayed error feedback.

Sarfi et al., Communication efficient LLM pre-training with SparseLoCo, 2025 (arXiv 2508.15706). It is used after each
round of local steps (``sync: diloco``), without outer momentum, as the decayed error feedback acts as a momentum:

    e ← β e + Δ          Δ: how far the local steps have moved the model
    Δ̂ ← Q(Top-k(e))      the 64 largest elements, by magnitude, of each chunk of 4 096
    e ← e − Δ̂
    θ ← θ − α mean Δ̂     the outer step, with α = 1

The quantisation Q was checked against the authors' code (tplr-ai/templar, compress.py). It sorts a tensor's chosen
values into 2^bits bins, which together are ``sigmas`` standard deviations wide around the mean; each value is replaced
by the mean of its bin. An index within a chunk has 12 bits. The authors' chunks are tiles of a matrix or runs of a
vector, whose sides are the largest divisors of the dimensions up to 64, and each chunk sends 64 elements. So a vector
is sent whole, and a matrix sends a larger share if 64 does not divide its sides. Here a chunk is 4 096 consecutive
elements, so that tensors can be cut or joined; the shorter last chunk of a tensor sends the same share of elements.

The authors' code, but not the paper, treats contributions in two more ways, which are aggregation rules here:
``norm_clip`` shortens contributions longer than the median, and ``sent_mean`` averages each element over the members
that sent it.

In the paper, every peer gathers the contributions of all peers. Here a server sends down the elements that have changed
(``pull: changed``), from which each worker gets the same model.

With ``k`` as large as the chunk, every element is sent, without indices: MuLoCo's two-bit changes with error feedback.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from testbed.codec import pairs
from testbed.codec.bits import packed, packed_bytes, unpacked
from testbed.codec.context import CodecContext
from testbed.codec.errors import check_finite
from testbed.codec.options import SparseLoCoOptions
from testbed.codec.pull import PullingCodec, make_exact_pull

INDEX_BITS = 12


class SparseLoCo(PullingCodec):
    """Up, by default: 14 bits for each sent element, and 16 bytes of bin means for each tensor.

    Down: 4 n bytes, or 8 bytes for each changed element.
    """

    has_memory = True
    sparse = True
    size_only = True
    remembers = ("_errors", "_pull")

    def __init__(self, options: SparseLoCoOptions, context: CodecContext) -> None:
        self._options = options
        self._pull = make_exact_pull(options.pull, context)
        self._errors: dict[int, Tensor] = {}

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        size = tensor.numel()
        if tensor.is_meta:
            return self._shapes(size)
        check_finite(wire_key, tensor)
        error = self._errors.get(wire_key)
        error = tensor.clone() if error is None else error * self._options.decay + tensor
        places = self._largest(error)
        codes, means = self._quantised(error[places])
        self._errors[wire_key] = error.index_add_(0, places, means[codes], alpha=-1)
        indices = (packed(places % self._options.chunk, INDEX_BITS),) if self._has_indices else ()
        return *indices, packed(codes, self._options.bits), means

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        expected = [(part.dtype, part.numel()) for part in self._shapes(size)]
        if [(part.dtype, part.numel()) for part in parts] != expected:
            raise ValueError(f"{len(parts)} parts are not indices, codes and bins of {size} elements")
        self._pull.on_contribution(wire_key, sum(self._counts(size)))
        *indices, codes, means = (part.flatten() for part in parts)
        if codes.is_meta:
            return torch.empty(size, device="meta")
        counts = self._counts(size)
        values = means[unpacked(codes, self._options.bits, sum(counts))]
        if not indices:
            return values
        chunks = torch.arange(len(counts)).to(codes.device) * self._options.chunk
        first = chunks.repeat_interleave(torch.tensor(counts).to(codes.device))
        places = first + unpacked(indices[0], INDEX_BITS, sum(counts))
        pairs.check_indices(places, size)
        return pairs.scatter(places, values, size)

    @property
    def _has_indices(self) -> bool:
        return self._options.k < self._options.chunk

    def _counts(self, size: int) -> list[int]:
        """Return how many elements of each chunk are sent."""
        whole, rest = divmod(size, self._options.chunk)
        share = math.ceil(self._options.k * rest / self._options.chunk)
        return [self._options.k] * whole + ([share] if rest else [])

    def _shapes(self, size: int) -> tuple[Tensor, ...]:
        count = sum(self._counts(size))
        lengths = [packed_bytes(count, INDEX_BITS)] if self._has_indices else []
        lengths.append(packed_bytes(count, self._options.bits))
        octets = [torch.empty(length, dtype=torch.uint8, device="meta") for length in lengths]
        return *octets, torch.empty(1 << self._options.bits, device="meta")

    def _largest(self, error: Tensor) -> Tensor:
        """Return the places of the largest elements of each chunk, int64 and ascending."""
        chunk = self._options.chunk
        whole = len(error) // chunk * chunk
        rows = error[:whole].view(-1, chunk).abs()
        starts = torch.arange(0, whole, chunk).to(error.device).unsqueeze(1)
        places = (rows.topk(self._options.k).indices.sort().values + starts).flatten()
        if whole == len(error):
            return places
        rest = error[whole:].abs().topk(self._counts(len(error))[-1]).indices.sort().values
        return torch.cat([places, rest + whole])

    def _quantised(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bin number of each value, int64, and the mean of each bin, float32 [2^bits]."""
        bins = 1 << self._options.bits
        centred = values - values.mean()
        deviation = float(centred.norm()) / math.sqrt(max(1, len(values) - 1))
        width = self._options.sigmas * deviation / bins or 1.0
        codes = (centred / width + bins // 2).round().clamp(0, bins - 1).long()
        sums = torch.zeros(bins, device=values.device).index_add_(0, codes, values)
        return codes, sums / torch.bincount(codes, minlength=bins).clamp(min=1)
