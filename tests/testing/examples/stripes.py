"""Grey images of stripes: the class is their direction, and noise makes it harder."""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from testbed.training.datasets.base import Dataset, DataSource
from testbed.training.seeds import numpy_stream

SIDE = 8


class Stripes(DataSource):
    """Sine waves of random phase along ``directions`` angles."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """Number of samples, classes, and noise."""

        train_samples: int = field(default=512, metadata={"help": "training samples", "min": 1, "max": 10**6})
        test_samples: int = field(default=128, metadata={"help": "test samples", "min": 1, "max": 10**6})
        directions: int = field(default=4, metadata={"help": "classes", "min": 2, "max": 64})
        noise: float = field(default=0.1, metadata={"help": "standard deviation of the noise", "min": 0, "max": 1})

    @classmethod
    def sample_bound(cls, options: Options) -> tuple[tuple[int, ...], int]:
        return (1, SIDE, SIDE), options.directions

    @staticmethod
    def load(options: Options, seed: int) -> Dataset:
        train = _draw(options, options.train_samples, numpy_stream(seed, "stripes", "train"))
        test = _draw(options, options.test_samples, numpy_stream(seed, "stripes", "test"))
        return Dataset(*train, *test, options.directions)


def _draw(options: Stripes.Options, count: int, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
    labels = draw.integers(options.directions, size=count)
    angles = (math.pi * labels / options.directions)[:, None, None]
    phases = draw.uniform(0, 2 * math.pi, (count, 1, 1))
    y, x = np.mgrid[:SIDE, :SIDE]
    waves = 0.5 + 0.5 * np.sin(x * np.cos(angles) + y * np.sin(angles) + phases)
    images = np.clip(waves + draw.normal(0, options.noise, waves.shape), 0, 1).astype(np.float32)
    return torch.from_numpy(images[:, None]), torch.from_numpy(labels.astype(np.int64))
