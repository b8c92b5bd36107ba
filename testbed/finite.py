"""Finds non-finite numbers in a training, and treats them as ``recovery.on_nan`` says.

``abort`` ends the run; ``skip`` leaves the contribution out of its round; ``ignore`` turns the check off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from testbed.errors import Diverged


def count_not_finite(tensor: Tensor) -> int:
    """Return how many elements are NaN or infinite; 0 for a tensor of shapes only.

    It sums first, as a sum that includes a NaN or an infinity is never finite. Only if the sum is not finite, which an
    overflow can cause as well, it checks every element.
    """
    if tensor.is_meta or math.isfinite(float(tensor.sum())):
        return 0
    return tensor.numel() - int(torch.isfinite(tensor).sum())


def first_not_finite(tensors: Sequence[Tensor]) -> tuple[int, int] | None:
    """Return the index of the first tensor with non-finite elements, and their number; ``None`` if there is none."""
    if tensors and not tensors[0].is_cpu and not tensors[0].is_meta and _norms_are_finite(tensors):
        return None
    for number, tensor in enumerate(tensors):
        if count := count_not_finite(tensor):
            return number, count
    return None


def _norms_are_finite(tensors: Sequence[Tensor]) -> bool:
    """Return whether all norms are finite, with one wait for the GPU. Large finite numbers may give infinite norms."""
    return math.isfinite(float(torch.stack(torch._foreach_norm(list(tensors))).sum()))


def end_or_leave_out(found: str, on_nan: str, record: Callable[..., object], *, can_be_left_out: bool = True) -> None:
    """Record a warning if the caller may leave the non-finite contribution out; else raise ``Diverged``.

    ``found`` describes the contribution in messages.
    """
    if on_nan == "skip" and can_be_left_out:
        record("warning", message=f"{found}: left out of the round")
        return
    also = "; recovery.on_nan: skip leaves single gradients out" if on_nan != "skip" else ""
    raise Diverged(f"{found}; the training has diverged: {Diverged.cure}{also}")
