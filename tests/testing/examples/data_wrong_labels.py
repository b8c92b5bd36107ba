"""Broken on purpose: classes are counted from 1."""

from dataclasses import dataclass

import torch

from testbed.training.datasets.base import Dataset, DataSource
from testbed.training.seeds import torch_stream


class WrongLabels(DataSource):
    """Noise with random labels."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    @staticmethod
    def load(options: Options, seed: int) -> Dataset:
        draw = torch_stream(seed, "noise")
        inputs = torch.rand(256, 1, 8, 8, generator=draw)
        labels = torch.randint(1, 11, (256,), generator=draw)
        return Dataset(inputs[:200], labels[:200], inputs[200:], labels[200:], 10)
