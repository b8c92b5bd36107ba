"""Refuses samples that no training can use. Loading reports them, as later errors would suggest other causes.

Non-finite numbers would make the loss non-finite, as a too high learning rate does; an invalid label would end a
training step with an index out of range.
"""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.errors import ScenarioError
from testbed.training.datasets.base import Dataset

_CHECKED_BYTES = 1 << 30  # tensors above this size are not checked: they may be memory-mapped files
_SAMPLES_AT_ONCE = 4096


def refuse_unusable(name: str, data: Dataset, *, is_text: bool) -> None:
    """Raise ``ScenarioError`` for a non-finite number or a label that is no class. ``name``: the data set's name."""
    for part in ("train", "test"):
        inputs: Tensor = getattr(data, f"{part}_inputs")
        _refuse_infinite(f"training.data: '{name}': {part}_inputs", inputs)
        classes = [f"{part}_labels"]
        if is_text:
            classes.append(f"{part}_inputs")
        for field in classes:
            _refuse_outside(f"training.data: '{name}': {field}", getattr(data, field), data.classes)


def _refuse_infinite(what: str, inputs: Tensor) -> None:
    if not inputs.is_floating_point() or inputs.nbytes > _CHECKED_BYTES:
        return
    for number, samples in enumerate(torch.split(inputs, _SAMPLES_AT_ONCE)):
        wrong = ~samples.isfinite()
        if wrong.any():
            first = wrong.nonzero()[0].tolist()
            value = samples[tuple(first)].item()
            place = f"{what}[{first[0] + number * _SAMPLES_AT_ONCE}]"
            where = f" at {first[1:]}" if first[1:] else ""
            raise ScenarioError(
                f"{place} has the number {value}{where}, and training needs finite ones; leave such samples out, or "
                "write another number in their place"
            )


def _refuse_outside(what: str, labels: Tensor, classes: int) -> None:
    if labels.nbytes > _CHECKED_BYTES or not labels.numel():
        return
    low, high = (int(each) for each in torch.aminmax(labels))
    if low >= 0 and high < classes:
        return
    first = ((labels < 0) | (labels >= classes)).nonzero()[0].tolist()
    value = labels[tuple(first)].item()
    cure = "count them from 0" if low < 0 else f"count them from 0, or return classes={high + 1}"
    raise ScenarioError(f"{what}{first} is {value}, but there are {classes} classes, from 0 to {classes - 1}; {cure}")
