"""An aggregate, and how one is made of the contributions of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from torch import Tensor


class AggregatedPush(msgspec.Struct):
    """The aggregate of the contributions of ``members`` to (key, round).

    notes     those of the contributions, merged
    priority  that of the contributions
    """

    key: int
    round: int
    tensor: Tensor
    members: tuple[str, ...]
    notes: dict[str, Any] = msgspec.field(default_factory=dict)
    priority: int = 0


def sum_in_order(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum, added in the order given; one tensor alone is returned itself, without a copy.

    Floating-point addition is not associative. Callers give contributions in rank order, whatever the order of their
    arrival was, so the sum has the same bits in every world and in every run.
    """
    if len(tensors) == 1 or tensors[0].is_meta:  # tensors without numbers need no sum
        return tensors[0]
    total = tensors[0] + tensors[1]
    for tensor in tensors[2:]:
        total += tensor
    return total


def merge_notes(all_notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the notes of pushes: ``last`` if any says so, the mean of ``loss``, the ``reports`` of all workers."""
    if not any(all_notes):
        return {}
    notes: dict[str, Any] = {}
    if any(each.get("last") for each in all_notes):
        notes["last"] = True
    losses = [each["loss"] for each in all_notes if "loss" in each]
    if losses:
        notes["loss"] = sum(losses) / len(losses)
    reports = {worker: report for each in all_notes for worker, report in each.get("reports", {}).items()}
    return notes | ({"reports": reports} if reports else {})
