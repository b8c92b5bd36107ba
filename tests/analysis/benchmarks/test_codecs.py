"""The benchmark of codecs: what a name stands for, the baseline that it compares with, and its rows."""

from __future__ import annotations

import argparse

import torch

from analysis.benchmarks.codecs import TORCH_TOPK, gradients, measure, torch_topk
from testbed.codec.memory import HostMemory
from testbed.codec.selectors.sweep import SampleAndSweep


def test_the_exact_selector_takes_what_the_baseline_takes() -> None:
    size, k = 20_000, 200
    memory, unsent = HostMemory(size, SampleAndSweep()), torch.zeros(size)
    for gradient in gradients(size, 1, 3):
        ours, theirs = memory.take(gradient, k)[1], torch_topk(gradient, unsent, k)[1]
        assert torch.equal(ours.sort().values, theirs.sort().values)


def test_one_row_per_codec() -> None:
    codecs = ("topk:ratio=0.1", "4-bit (DGT)", TORCH_TOPK)
    rows = list(measure(argparse.Namespace(elements=(2000.0,), codecs=codecs, repeats=1, seed=0)))
    assert [row["codec"].rstrip() for row in rows] == list(codecs)
    assert all(row["encode_ms"] > 0 and row["decode_ms"] > 0 for row in rows)
