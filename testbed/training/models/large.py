"""Networks for large images: ResNet-50 and its larger relatives, and vision transformers. Neither has buffers."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.training.models.transformer import TransformerBlock
from testbed.training.options.models import ResNet50, VisionTransformer

GROUPS = 32
_EXPANSION = 4
_BLOCKS = {"50": (3, 4, 6, 3), "101": (3, 4, 23, 3), "152": (3, 8, 36, 3)}
_VIT = {"tiny": (12, 3), "small": (12, 6), "base": (12, 12)}  # blocks, heads of width 64


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions, added to their input or, where shapes differ, to its projection."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * _EXPANSION
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.norm3 = nn.GroupNorm(GROUPS, outputs)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs or stride > 1:
            projection = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.GroupNorm(GROUPS, outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        inner = functional.relu(self.norm1(self.conv1(inputs)))
        inner = functional.relu(self.norm2(self.conv2(inner)))
        return functional.relu(self.norm3(self.conv3(inner)) + self.shortcut(inputs))


def resnet50(options: ResNet50, image_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Logits [batch, classes]. A segment is the stem, a bottleneck block, or the head."""
    stem = nn.Sequential(
        nn.Conv2d(image_shape[0], 64, 7, stride=2, padding=3, bias=False),
        nn.GroupNorm(GROUPS, 64),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    )
    blocks: OrderedDict[str, nn.Module] = OrderedDict(stem=stem)
    inputs = 64
    for stage, count in enumerate(_BLOCKS[options.depth], 1):
        width = 64 * 2 ** (stage - 1)
        for number in range(1, count + 1):
            stride = 2 if stage > 1 and number == 1 else 1
            blocks[f"stage{stage}block{number}"] = Bottleneck(inputs, width, stride)
            inputs = width * _EXPANSION
    blocks["head"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    return nn.Sequential(blocks)


class Patches(nn.Module):
    """Images [batch, channels, side, side] to patches [batch, patches, width], each with its position."""

    def __init__(self, channels: int, patch: int, count: int, width: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(channels, width, patch, stride=patch)
        self.position = nn.Parameter(torch.empty(count, width))

    def forward(self, images: Tensor) -> Tensor:
        patches: Tensor = self.projection(images).flatten(2).transpose(1, 2)
        return patches + self.position


class MeanOfPatches(nn.Module):
    """[batch, patches, width] to [batch, width]."""

    def forward(self, patches: Tensor) -> Tensor:
        return patches.mean(dim=1)


def vision_transformer(options: VisionTransformer, image_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Logits [batch, classes]. A segment is the embedding of patches, a block, or the head."""
    channels, height, across = image_shape
    layers, heads = _VIT[options.size]
    width = 64 * heads
    count = (height // options.patch) * (across // options.patch)
    blocks: OrderedDict[str, nn.Module] = OrderedDict(patches=Patches(channels, options.patch, count, width))
    for number in range(1, layers + 1):
        blocks[f"block{number}"] = TransformerBlock(width, heads, causal=False)
    blocks["head"] = nn.Sequential(nn.LayerNorm(width), MeanOfPatches(), nn.Linear(width, classes))
    return nn.Sequential(blocks)
