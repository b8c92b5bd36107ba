"""Numbers of a training that are not finite, and what ``recovery.on_nan`` makes of them.

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

    One reading pass: a sum with a NaN or an infinity in it is never finite. The sum of finite numbers may overflow, and
    only then the elements are looked at one by one.
    """
    if tensor.is_meta or math.isfinite(float(tensor.sum())):
        return 0
    return tensor.numel() - int(torch.isfinite(tensor).sum())


def first_not_finite(tensors: Sequence[Tensor]) -> tuple[int, int] | None:
    """Return the number of the first tensor with elements that are not finite, and how many these are."""
    if tensors and not tensors[0].is_cpu and not tensors[0].is_meta and _norms_are_finite(tensors):
        return None
    for number, tensor in enumerate(tensors):
        if count := count_not_finite(tensor):
            return number, count
    return None


def _norms_are_finite(tensors: Sequence[Tensor]) -> bool:
    """Return whether all norms are finite, with one wait for the GPU. Of large finite numbers they may be infinite."""
    return math.isfinite(float(torch.stack(torch._foreach_norm(list(tensors))).sum()))


def end_or_leave_out(found: str, on_nan: str, record: Callable[..., object], *, can_be_left_out: bool = True) -> None:
    """Raise ``Diverged``, or record a warning where the caller may leave out what was ``found`` not to be finite."""
    if on_nan == "skip" and can_be_left_out:
        record("warning", message=f"{found}: left out of the round")
        return
    also = "; recovery.on_nan: skip leaves single gradients out" if on_nan != "skip" else ""
    raise Diverged(f"{found}; the training has diverged: {Diverged.cure}{also}")
