"""What each codec costs on a CPU: encode and decode of one tensor, beside a clone of it and a bare ``residual += g``.

    testbed bench codecs --elements 1e7,1e8 --codecs twobit,topk

Codecs have their default options, one thread, and a memory that has gathered residuals.
Steps alternate within each repeat; shown are medians of processor time in ms per 10 million elements, and ratios to the
clone, which writes a new tensor as a codec does, and to the sum, which no error feedback can be faster than.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from torch import Tensor

from analysis.benchmarks.harness import Benchmark, Row, alternate, listed
from analysis.benchmarks.sparsification import gradients
from testbed.codec import fourbit
from testbed.codec.options import CODECS
from testbed.codec.table import make_codec

UNIT = 10_000_000  # elements
WARM_UP_ROUNDS = 2
FOUR_BITS = "4-bit (DGT)"
CLONE, FLOOR = "clone", "residual += g"

Step = Callable[[int], Any]


def steps_of(name: str, inputs: list[Tensor]) -> dict[str, Step]:
    """Return ``encode`` and ``decode`` of a codec, which take the number of a repeat."""
    size = inputs[0].numel()
    if name == FOUR_BITS:
        encoded = fourbit.encode(inputs[0])
        return {"encode": lambda repeat: fourbit.encode(inputs[repeat % len(inputs)]),
                "decode": lambda repeat: fourbit.decode(*encoded, size)}  # fmt: skip
    sender, receiver = make_codec(name, {}, contributors=4), make_codec(name, {}, contributors=4)
    for end in (sender, receiver):
        end.begin(0, torch.zeros(size))
    for repeat in range(WARM_UP_ROUNDS):
        parts = sender.encode(0, inputs[repeat % len(inputs)])
    return {"encode": lambda repeat: sender.encode(0, inputs[repeat % len(inputs)]),
            "decode": lambda repeat: receiver.decode(0, parts, size)}  # fmt: skip


def bare_steps(gradient: Tensor) -> dict[str, Step]:
    """Return the steps that codecs are compared with."""
    residual = torch.zeros_like(gradient)
    return {CLONE: lambda repeat: gradient.clone(), FLOOR: lambda repeat: residual.add_(gradient)}


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """One row per size and codec."""
    torch.set_num_threads(1)
    for size in map(int, options.elements):
        inputs = gradients(size, options.seed)
        for name in options.codecs or (*CODECS, FOUR_BITS):
            steps = bare_steps(inputs[0]) | steps_of(name, inputs)
            times_s = alternate(steps, options.repeats, time.process_time)
            middle_s = {step: median(times) for step, times in times_s.items()}
            yield {"elements": size, "codec": name.ljust(12), **_columns(middle_s, UNIT / size)}


def _columns(seconds: dict[str, float], scale: float) -> dict[str, float]:
    ms = {f"{step}_ms": seconds[step] * scale * 1e3 for step in ("encode", "decode")}
    ratios = {f"{step}_per_clone": seconds[step] / seconds[CLONE] for step in ("encode", "decode")}
    return {**ms, **ratios, "encode_per_sum": seconds["encode"] / seconds[FLOOR],
            "clone_ms": seconds[CLONE] * scale * 1e3, "sum_ms": seconds[FLOOR] * scale * 1e3}  # fmt: skip


BENCHMARK = Benchmark(
    measure=measure,
    arguments={
        "--elements": {"type": listed(float), "default": (1e7,), "metavar": "N,…"},
        "--codecs": {"type": listed(str), "default": (), "metavar": "CODEC,…", "help": "default: all"},
        "--repeats": {"type": int, "default": 7},
        "--seed": {"type": int, "default": 0},
    },
)
