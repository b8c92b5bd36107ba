"""A perceptron with a narrow middle and a residual path around it, for images of any size."""

from dataclasses import dataclass, field
from math import prod

from torch import Tensor, nn

from testbed.training.models.base import Model


class Residual(nn.Module):
    """x + W2 relu(W1 x)."""

    def __init__(self, wide: int, narrow: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(wide, narrow), nn.ReLU(), nn.Linear(narrow, wide))

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = inputs + self.inner(inputs)
        return result


class NarrowPerceptron(Model):
    """Three blocks, which are sent one by one with ``overlap: layers``."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """Widths of the layers."""

        wide: int = field(default=32, metadata={"help": "width of the residual path", "min": 1, "max": 4096})
        narrow: int = field(default=8, metadata={"help": "width of the bottleneck", "min": 1, "max": 4096})

    @staticmethod
    def build(options: Options, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        first = nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), options.wide), nn.ReLU())
        return nn.Sequential(first, Residual(options.wide, options.narrow), nn.Linear(options.wide, classes))
