"""Networks for small images: convolutional, dense, and residual ones.

Residual networks are ResNet-8, 20, 32, … (He et al., 2016, §4.2), with group normalisation. The shortcut between stages
is the paper's option A (every second pixel, zeros for the new channels), so ResNet-20 has its 269 722 parameters.
Groups of channels (Wu and He, 2018) are normalised within a sample: nothing to synchronise.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn
from torch.nn import functional

from testbed.training.options.models import Cnn, LeNet, Mlp, ResNet

KERNEL = 5
WIDTHS = (16, 32, 64)  # of a residual network's stages
GROUPS = 8


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
    for number in range(1, options.layers + 1):
        blocks[f"dense{number}"] = [nn.Linear(inputs, options.hidden), nn.ReLU()]
        inputs = options.hidden
    blocks["output"] = [nn.Linear(inputs, classes)]
    next(iter(blocks.values())).insert(0, nn.Flatten())
    return _blocks(**blocks)


def _pooled(side: int, paddings: tuple[int, ...]) -> int:
    """The side of an image after a 5×5 convolution and a 2×2 pooling for each of ``paddings``."""
    for padding in paddings:
        side = (side + 2 * padding - KERNEL + 1) // 2
    return side


def _blocks(**blocks: list[nn.Module]) -> nn.Sequential:
    return nn.Sequential(OrderedDict((name, nn.Sequential(*layers)) for name, layers in blocks.items()))


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions, added to their input. [batch, inputs, h, w] to [batch, outputs, h/stride, w/stride]."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, outputs)
        self._stride = stride
        self._new_channels = outputs - inputs

    def forward(self, inputs: Tensor) -> Tensor:
        inner = functional.relu(self.norm1(self.conv1(inputs)))
        shortcut = inputs[:, :, :: self._stride, :: self._stride]
        if self._new_channels:
            before = self._new_channels // 2
            shortcut = functional.pad(shortcut, (0, 0, 0, 0, before, self._new_channels - before))
        return functional.relu(self.norm2(self.conv2(inner)) + shortcut)


def resnet(options: ResNet, image_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Depth 6·blocks + 2; a segment is the stem, a residual block, or the head."""
    width = WIDTHS[0] * options.widen
    stem = nn.Sequential(
        nn.Conv2d(image_shape[0], width, 3, padding=1, bias=False), nn.GroupNorm(GROUPS, width), nn.ReLU()
    )
    blocks: OrderedDict[str, nn.Module] = OrderedDict(stem=stem)
    for stage, outputs in enumerate(WIDTHS, 1):
        for number in range(1, options.blocks + 1):
            stride = 2 if stage > 1 and number == 1 else 1
            blocks[f"stage{stage}block{number}"] = ResidualBlock(width, outputs * options.widen, stride)
            width = outputs * options.widen
    blocks["head"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))
    return nn.Sequential(blocks)
