"""Broken on purpose: batch normalisation has running means, which are not synchronised."""

from dataclasses import dataclass
from math import prod

from torch import nn

from testbed.training.models.base import Model


class WithBuffers(Model):
    """A perceptron with batch normalisation."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    @staticmethod
    def build(options: Options, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        size = prod(input_shape)
        return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(size), nn.Linear(size, classes))
