"""Residual networks for small images: ResNet-8, 20, 32, … (He et al., 2016, §4.2), with group normalisation.

The shortcut between stages is the paper's option A (every second pixel, zeros for the new channels), so ResNet-20 has
its 269 722 parameters. Groups of channels (Wu and He, 2018) are normalised within a sample: nothing to synchronise.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn
from torch.nn import functional

from testbed.training.options.models import ResNet

WIDTHS = (16, 32, 64)
GROUPS = 8


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions, added to their input. [batch, inputs, h, w] to [batch, outputs, h/stride, w/stride]."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, outputs)
        self._stride, self._new_channels = stride, outputs - inputs

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
