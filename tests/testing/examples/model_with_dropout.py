"""Broken on purpose: dropout draws from torch's own random numbers, which differ between worlds."""

from dataclasses import dataclass
from math import prod

from torch import nn

from testbed.training.models.base import Model


class WithDropout(Model):
    """A linear model with dropout."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    @staticmethod
    def build(options: Options, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(prod(input_shape), classes))
