"""Broken on purpose: samples come from torch's own random numbers, and differ from process to process."""

from dataclasses import dataclass

import torch

from testbed.training.datasets.base import Dataset, DataSource


class IgnoresTheSeed(DataSource):
    """Noise, whose class is the sign of its sum."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    @staticmethod
    def load(options: Options, seed: int) -> Dataset:
        inputs = torch.randn(256, 1, 8, 8)
        labels = (inputs.sum((1, 2, 3)) > 0).long()
        return Dataset(inputs[:200], labels[:200], inputs[200:], labels[200:], 2)
