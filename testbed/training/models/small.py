"""Convolutional and dense networks for small images."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from testbed.errors import ScenarioError
from testbed.training.options.models import Cnn, LeNet, Mlp

KERNEL = 5
SMALLEST_SIDE = 4


def cnn(options: Cnn, image_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """GeoMX's demo network at 28×28 and above; smaller images are padded so that both poolings have input."""
    channels, height, width = image_shape
    padding = 0 if min(height, width) >= 28 else 2
    features = 32 * _pooled(height, (padding, padding)) * _pooled(width, (padding, padding))
    return _blocks(
        conv1=[nn.Conv2d(channels, 16, KERNEL, padding=padding), nn.ReLU(), nn.MaxPool2d(2)],
        conv2=[nn.Conv2d(16, 32, KERNEL, padding=padding), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()],
        dense1=[nn.Linear(features, 256), nn.ReLU()],
        dense2=[nn.Linear(256, 128), nn.ReLU()],
        dense3=[nn.Linear(128, classes)],
    )


def lenet(options: LeNet, image_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """LeNet-5: made for 32×32, so smaller images are padded to its size at 28×28 (61 706 parameters)."""
    channels, height, width = image_shape
    first = 0 if min(height, width) >= 32 else 2
    second = 0 if min(height, width) >= 28 else 2
    features = 16 * _pooled(height, (first, second)) * _pooled(width, (first, second))
    return _blocks(
        conv1=[nn.Conv2d(channels, 6, KERNEL, padding=first), nn.ReLU(), nn.MaxPool2d(2)],
        conv2=[nn.Conv2d(6, 16, KERNEL, padding=second), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()],
        dense1=[nn.Linear(features, 120), nn.ReLU()],
        dense2=[nn.Linear(120, 84), nn.ReLU()],
        dense3=[nn.Linear(84, classes)],
    )


def mlp(options: Mlp, image_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """``layers`` hidden layers of ``hidden`` units, and a linear output."""
    channels, height, width = image_shape
    inputs = channels * height * width
    blocks: dict[str, list[nn.Module]] = {}
    for number in range(options.layers):
        flatten: list[nn.Module] = [nn.Flatten()] if number == 0 else []
        blocks[f"dense{number + 1}"] = [*flatten, nn.Linear(inputs, options.hidden), nn.ReLU()]
        inputs = options.hidden
    flatten = [] if options.layers else [nn.Flatten()]
    return _blocks(**blocks, output=[*flatten, nn.Linear(inputs, classes)])


def _pooled(side: int, paddings: tuple[int, ...]) -> int:
    """The side of an image after a 5×5 convolution and a 2×2 pooling for each of ``paddings``."""
    if side < SMALLEST_SIDE:
        raise ScenarioError(f"training.model: images of side {side} are too small for two convolutions; use mlp")
    for padding in paddings:
        side = (side + 2 * padding - KERNEL + 1) // 2
    return side


def _blocks(**blocks: list[nn.Module]) -> nn.Sequential:
    return nn.Sequential(OrderedDict((name, nn.Sequential(*layers)) for name, layers in blocks.items()))
