"""Residual memories on a GPU: exact top-k with error feedback or momentum correction, and the published approximations.

Exact top-k is the algorithm of ``sweep``: two Triton kernels with CUDA, which move 12.6 bytes an element and wait for
the GPU once a call; torch operations elsewhere. Positions and values are the same as on the CPU, bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from testbed.codec.selectors.chance import RandomK
from testbed.codec.selectors.mstopk import PublishedMsTopk
from testbed.codec.selectors.sources import INFINITY_BITS, NonFinite, check_k
from testbed.codec.selectors.sweep import SAFETY, sample_of
from testbed.state import Remembering

WITHOUT_SIGN = 0x7FFFFFFF

Add = Callable[[Tensor, Tensor, int], Tensor]  # (unsent, added, k): adds in place, returns positions, ascending


class DeviceMemory(Remembering):
    """The residual of one key, on a GPU. See ``testbed.codec.memory``.

    momentum  factor of the momentum correction; ``None``: plain error feedback
    add       adds to the residual, and chooses positions
    """

    remembers = ("_unsent", "_velocity")

    def __init__(self, size: int, device: torch.device, momentum: float | None, add: Add) -> None:
        self._unsent = torch.zeros(size, device=device)
        self._velocity = None if momentum is None else torch.zeros(size, device=device)
        self._momentum = momentum or 0.0
        self._add = add

    def take(self, gradient: Tensor, k: int) -> tuple[Tensor, Tensor]:
        check_k(k, gradient.numel())
        added = gradient
        if self._velocity is not None:
            added = self._velocity.mul_(self._momentum).add_(gradient)
        # some published selectors may return more than k; the message has room for k, the others stay unsent
        indices = self._add(self._unsent, added, k)[:k]
        values = self._unsent[indices]
        self._unsent[indices] = 0
        if self._velocity is not None:
            self._velocity[indices] = 0
        return indices, values


def exact(unsent: Tensor, added: Tensor, k: int) -> Tensor:
    """Add, and return the positions of the k largest magnitudes; on any device."""
    unsent.add_(added)
    _check_finite(unsent)
    return largest(unsent, k)


class TritonSweep:
    """Does the same as ``exact`` by two kernels. ``seed`` places the sample, which affects only the time."""

    def __init__(self, size: int, device: torch.device, seed: int = 0) -> None:
        self._sample = torch.from_numpy(sample_of(size, seed).copy()).to(device)

    def __call__(self, unsent: Tensor, added: Tensor, k: int) -> Tensor:
        # imported here, as it needs Triton, which only the CUDA builds of PyTorch include
        from testbed.codec.selectors.triton_kernels import collect, compact, cumulative_blocks

        bound, most = self._bound(unsent, added, k)
        found = collect(unsent, added, bound)
        ends = cumulative_blocks(found)
        count, bad = torch.stack([ends[-1], found.bad[0].long()]).tolist()  # the one wait for the GPU
        if bad:
            raise NonFinite(bad)
        if count < k or count > most:  # the sample was misleading (or fewer than k are not zero): examine all elements
            return largest(unsent, k)
        indices, values = compact(unsent, bound, found, ends, count)
        return indices[largest(values, k)]

    def _bound(self, unsent: Tensor, added: Tensor, k: int) -> tuple[Tensor, int]:
        """Return, as in ``sweep``, a magnitude (bits, on the GPU) that at least k should reach, and how many may."""
        sample = self._sample
        size = unsent.numel()
        bits = magnitudes(unsent[sample] + added[sample])
        expected = k / size * sample.numel()
        rank = min(sample.numel(), int(expected + SAFETY * math.sqrt(expected) + SAFETY))
        bound = torch.topk(bits, rank, sorted=False).values.min().clamp(1, INFINITY_BITS)
        return bound.view(1), 4 * rank * (size // sample.numel() + 1)


def magnitudes(numbers: Tensor) -> Tensor:
    """Return |numbers| as int32 that compare in the same order."""
    return numbers.view(torch.int32) & WITHOUT_SIGN


def largest(values: Tensor, k: int) -> Tensor:
    """Return the positions, ascending, of the k largest magnitudes, without zeros; of equal ones, the first."""
    bits = magnitudes(values)
    if not k:
        return torch.empty(0, dtype=torch.int64, device=values.device)
    smallest = torch.topk(bits, min(k, bits.numel()), sorted=False).values.min().clamp(min=1)
    above = bits > smallest
    equal = bits == smallest
    take = above | (equal & (torch.cumsum(equal, 0) <= k - above.sum()))
    return take.nonzero().view(-1)


def _check_finite(values: Tensor) -> None:
    bad = int((magnitudes(values) >= INFINITY_BITS).sum())
    if bad:
        raise NonFinite(bad)


def random_positions(select: RandomK) -> Add:
    """Return a selector that draws on the host, in the same way as there, so that only positions are copied."""

    def add(unsent: Tensor, added: Tensor, k: int) -> Tensor:
        unsent.add_(added)
        _check_finite(unsent)
        return torch.from_numpy(select.draw(unsent.numel(), k)).to(unsent.device)

    return add


def published_mstopk(select: PublishedMsTopk) -> Add:
    """Return the published search. The GPU sums in another order, so the mean and thresholds may differ slightly."""

    def add(unsent: Tensor, added: Tensor, k: int) -> Tensor:
        unsent.add_(added)
        _check_finite(unsent)
        sizes = unsent.abs()
        mean = sizes.mean().item()
        most = sizes.max().item()
        found = select.search(mean, most, lambda threshold: int((sizes >= threshold).sum()), k, sizes.numel())
        sure = (sizes >= found.upper).nonzero().view(-1)
        between = ((sizes >= found.lower) & (sizes < found.upper)).nonzero().view(-1)
        start, missing = select.run(between.numel(), k, found.upper_count)
        return torch.cat([sure, between[start : start + missing]]).sort().values

    return add
