"""Measure the shape of a model without its values: sizes, and work counted by torch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from testbed.training.declared import declared_shape
from testbed.training.models import assemble, segments
from testbed.training.options import MODELS
from testbed.training.options.declarations import TEXT
from testbed.training.options.models import Declared
from testbed.training.shapes import ModelShape, SegmentShape


def shape_of_model(kind: str, options: dict[str, Any], input_shape: tuple[int, ...], classes: int) -> ModelShape:
    """Return segments, sizes and work of a model; a declared one ignores ``input_shape`` and ``classes``.

    Nothing is computed: the layers run on torch's meta device. Raise as ``build_model`` and ``declared_shape``.
    """
    chosen = MODELS.options(kind, options)
    if isinstance(chosen, Declared):
        return declared_shape(**asdict(chosen))
    with torch.device("meta"):
        model = assemble(kind, options, input_shape, classes)
        dtype = torch.int64 if MODELS[kind].takes == TEXT else torch.float32
        return measure(kind, model, torch.empty(1, *input_shape, dtype=dtype))


def measure(name: str, model: nn.Module, sample: Tensor) -> ModelShape:
    """Return the shape of ``model``, given a batch with one sample on the same device."""
    shapes, outputs = [], sample
    for segment in segments(model):
        inputs = outputs.detach().requires_grad_(segment.keys.start > 0)
        with FlopCounterMode(display=False) as forward:
            outputs = segment.module(inputs)
        with FlopCounterMode(display=False) as backward:
            outputs.backward(torch.empty_like(outputs))
        sizes = tuple(parameter.numel() for parameter in segment.parameters)
        shapes.append(SegmentShape(segment.name, sizes, forward.get_total_flops(), backward.get_total_flops()))
    return ModelShape(name, tuple(shapes))
