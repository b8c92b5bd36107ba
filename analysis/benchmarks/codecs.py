"""What each codec costs on a CPU: encode and decode of one tensor, beside a clone of it and a bare ``residual += g``.

    testbed bench codecs --elements 1e7,1e8 --codecs twobit,topk:ratio=0.001,mstopk,torch.topk

A codec is written ``KIND[:OPTION=VALUE]…``; options that are not given have their defaults. ``torch.topk`` stands for
top-k with error feedback by that function alone, without the check for numbers that are not finite; its share of the
elements is the option ``ratio``.

Gradients are heavy-tailed (Student's t with 3 degrees of freedom), and each block of a layer's size has a scale of its
own. Everything has one thread, and a codec's memory has gathered residuals before the clock starts. Steps alternate
within each repeat. The table shows medians of processor time in ms per 10 million elements, and ratios to the clone,
which writes a new tensor as a codec does, and to the sum, which no error feedback can be faster than.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from analysis.benchmarks.harness import Row, alternate, listed
from testbed.codec import fourbit
from testbed.codec.options import CODECS
from testbed.codec.pairs import entries
from testbed.codec.table import make_codec

UNIT = 10_000_000  # elements
LAYER = 250_000  # elements with one scale
WARM_UP_ROUNDS = 2
FOUR_BITS = "4-bit (DGT)"
TORCH_TOPK = "torch.topk"
RATIO = 0.01  # default share of the elements that torch.topk selects
CLONE = "clone"
FLOOR = "residual += g"

Step = Callable[[int], Any]


def gradients(size: int, seed: int, count: int = 2) -> list[Tensor]:
    """Return heavy-tailed gradients; a layer has the same scale in all of them."""
    layers = -(-size // LAYER)
    scales = np.random.default_rng(seed).lognormal(np.log(1e-4), 1.0, layers).astype(np.float32)
    found = []
    for number in range(count):
        random = np.random.default_rng((seed, number))
        numbers = np.empty(size, np.float32)
        for layer, scale in enumerate(scales):
            part = numbers[layer * LAYER : (layer + 1) * LAYER]
            part[:] = random.standard_t(3, part.size) * scale
        found.append(torch.from_numpy(numbers))
    return found


def kind_and_options(text: str) -> tuple[str, dict[str, Any]]:
    """Parse ``KIND[:OPTION=VALUE]…``."""
    kind, *pairs = text.split(":")
    options: dict[str, Any] = dict(pair.split("=", 1) for pair in pairs)
    for name, value in options.items():
        with suppress(ValueError):  # a word stays a text
            options[name] = json.loads(value)
    return kind, options


def steps_of(name: str, inputs: list[Tensor]) -> dict[str, Step]:
    """Return the functions ``encode`` and ``decode`` of a codec. Their argument is the number of the repeat."""
    size = inputs[0].numel()
    kind, options = kind_and_options(name)
    if kind == FOUR_BITS:
        encoded = fourbit.encode(inputs[0])
        return {
            "encode": lambda repeat: fourbit.encode(inputs[repeat % len(inputs)]),
            "decode": lambda repeat: fourbit.decode(*encoded, size),
        }
    if kind == TORCH_TOPK:
        unsent = torch.zeros(size)
        k = entries(size, options.get("ratio", RATIO))
        for gradient in inputs:
            indices, values = torch_topk(gradient, unsent, k)
        return {
            "encode": lambda repeat: torch_topk(inputs[repeat % len(inputs)], unsent, k),
            "decode": lambda repeat: torch.zeros(size).index_copy_(0, indices, values),
        }
    sender, receiver = (make_codec(kind, options, contributors=4) for _ in range(2))
    for end in (sender, receiver):
        end.begin(0, torch.zeros(size))
    for repeat in range(WARM_UP_ROUNDS):
        parts = sender.encode(0, inputs[repeat % len(inputs)])
    return {
        "encode": lambda repeat: sender.encode(0, inputs[repeat % len(inputs)]),
        "decode": lambda repeat: receiver.decode(0, parts, size),
    }


def torch_topk(gradient: Tensor, unsent: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return indices and values of the k largest magnitudes of ``unsent + gradient``; the rest stays in ``unsent``."""
    indices = torch.topk(unsent.add_(gradient).abs(), k, sorted=False).indices
    values = unsent[indices]
    unsent[indices] = 0
    return indices, values


def bare_steps(gradient: Tensor) -> dict[str, Step]:
    residual = torch.zeros_like(gradient)
    return {CLONE: lambda repeat: gradient.clone(), FLOOR: lambda repeat: residual.add_(gradient)}


def measure(options: argparse.Namespace) -> Iterator[Row]:
    torch.set_num_threads(1)
    for size in map(int, options.elements):
        inputs = gradients(size, options.seed)
        for name in options.codecs or (*CODECS, FOUR_BITS, TORCH_TOPK):
            steps = bare_steps(inputs[0]) | steps_of(name, inputs)
            times_s = alternate(steps, options.repeats, time.process_time)
            middle_s = {step: median(times) for step, times in times_s.items()}
            yield {"elements": size, "codec": name.ljust(12), **_columns(middle_s, UNIT / size)}


def _columns(seconds: dict[str, float], scale: float) -> dict[str, float]:
    ms = {f"{step}_ms": seconds[step] * scale * 1e3 for step in ("encode", "decode")}
    ratios = {f"{step}_per_clone": seconds[step] / seconds[CLONE] for step in ("encode", "decode")}
    return {
        **ms,
        **ratios,
        "encode_per_sum": seconds["encode"] / seconds[FLOOR],
        "clone_ms": seconds[CLONE] * scale * 1e3,
        "sum_ms": seconds[FLOOR] * scale * 1e3,
    }


ARGUMENTS = {
    "--elements": {"type": listed(float), "default": (1e7,), "metavar": "N,…"},
    "--codecs": {"type": listed(str), "default": (), "metavar": "CODEC,…", "help": "default: all"},
    "--repeats": {"type": int, "default": 7},
    "--seed": {"type": int, "default": 0},
}
