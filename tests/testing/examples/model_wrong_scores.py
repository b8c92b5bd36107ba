"""Broken on purpose: one score too many."""

from dataclasses import dataclass
from math import prod

from torch import nn

from testbed.training.models.base import Model


class WrongScores(Model):
    """A linear model."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    @staticmethod
    def build(options: Options, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), classes + 1))
