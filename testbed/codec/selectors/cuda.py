"""Sample and sweep on a GPU: exact top-k with error feedback or momentum correction, at 12.6 bytes an element.

The algorithm of ``sweep`` in Triton and torch, with one synchronisation with the host a call. Import this module only
where there is a GPU (or Triton's interpreter): it needs Triton, which comes with the CUDA builds of PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from testbed.codec.selectors.sources import INFINITY_BITS, NonFinite, check_k
from testbed.codec.selectors.sweep import SAFETY, sample_of
from testbed.codec.selectors.triton_kernels import collect, compact, cumulative_blocks

WITHOUT_SIGN = 0x7FFFFFFF


class CudaMemory:
    """What is unsent of one key, on a GPU. ``momentum`` None: plain error feedback. See ``testbed.codec.memory``."""

    def __init__(self, size: int, device: torch.device, momentum: float | None, seed: int = 0) -> None:
        self._unsent = torch.zeros(size, device=device)
        self._velocity = None if momentum is None else torch.zeros(size, device=device)
        self._momentum = momentum or 0.0
        self._sample = torch.from_numpy(sample_of(size, seed).copy()).to(device)

    def take(self, gradient: Tensor, k: int) -> tuple[Tensor, Tensor]:
        added = gradient
        if self._velocity is not None:
            added = self._velocity.mul_(self._momentum).add_(gradient)
        indices, values = self._select(added, k)
        self._unsent[indices] = 0
        if self._velocity is not None:
            self._velocity[indices] = 0
        return indices.cpu(), values.cpu()

    def unsent(self) -> Tensor:
        return self._unsent

    def state(self) -> dict[str, Tensor]:
        kept = {"unsent": self._unsent} | ({} if self._velocity is None else {"velocity": self._velocity})
        return {name: tensor.to("cpu", copy=True) for name, tensor in kept.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._unsent.copy_(state["unsent"])
        if self._velocity is not None:
            self._velocity.copy_(state["velocity"])

    def _select(self, added: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Add to what is unsent; the k largest of it: ascending indices, values."""
        size = self._unsent.numel()
        check_k(k, size)
        bound, most = self._bound(added, k)
        found = collect(self._unsent, added, bound)
        ends = cumulative_blocks(found)
        count, bad = torch.stack([ends[-1], found.bad[0].long()]).tolist()  # the one wait for the GPU
        if bad:
            raise NonFinite(bad)
        if count < k or count > most:  # the sample misled (or fewer than k are not zero): look at everything
            return largest(torch.arange(size, device=self._unsent.device), self._unsent, k)
        return largest(*compact(self._unsent, bound, found, ends, count), k)

    def _bound(self, added: Tensor, k: int) -> tuple[Tensor, int]:
        """As in ``sweep``: a magnitude (bits, on the GPU) that more than k should reach, and how many may."""
        sample, size = self._sample, self._unsent.numel()
        bits = (self._unsent[sample] + added[sample]).view(torch.int32) & WITHOUT_SIGN
        expected = k / size * sample.numel()
        rank = min(sample.numel(), int(expected + SAFETY * math.sqrt(expected) + SAFETY))
        bound = torch.topk(bits, rank, sorted=False).values.min().clamp(1, INFINITY_BITS)
        return bound.view(1), 4 * rank * (size // sample.numel() + 1)


def largest(indices: Tensor, values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Of candidates in ascending order, the k largest that are not zero; equal ones from the lowest index."""
    bits = values.view(torch.int32) & WITHOUT_SIGN
    if not k:
        return indices[:0], values[:0]
    smallest = torch.topk(bits, min(k, bits.numel()), sorted=False).values.min().clamp(min=1)
    above, equal = bits > smallest, bits == smallest
    take = above | (equal & (torch.cumsum(equal, 0) <= k - above.sum()))
    chosen = take.nonzero().view(-1)
    return indices[chosen], values[chosen]
