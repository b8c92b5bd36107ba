"""Models by name. Every tensor of a model is a key; keys are numbered in the model's own order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from testbed.training.options import MODELS, Cnn, Mlp
from testbed.training.seeds import seed_for


def _cnn(options: Cnn, image_shape: tuple[int, int, int], classes: int) -> nn.Module:
    # At 28×28 and above exactly GeoMX's demo network; smaller images are padded so that both poolings have input.
    channels, height, width = image_shape
    padding = 0 if min(height, width) >= 28 else 2
    convolutions = nn.Sequential(
        nn.Conv2d(channels, 16, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    )  # fmt: skip
    with torch.no_grad():
        features = convolutions(torch.zeros(1, *image_shape)).shape[1]
    dense = nn.Sequential(nn.Linear(features, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, classes))
    return nn.Sequential(*convolutions, *dense)


def _mlp(options: Mlp, image_shape: tuple[int, int, int], classes: int) -> nn.Module:
    channels, height, width = image_shape
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = channels * height * width
    for _ in range(options.layers):
        layers += [nn.Linear(inputs, options.hidden), nn.ReLU()]
        inputs = options.hidden
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


_BUILDERS: dict[str, Callable[[Any, tuple[int, int, int], int], nn.Module]] = {"cnn": _cnn, "mlp": _mlp}


def build_model(
    kind: str, options: dict[str, Any], image_shape: tuple[int, int, int], classes: int, seed: int
) -> nn.Module:
    """A model with parameters drawn from ``seed`` alone (Xavier weights, zero biases, as GeoMX's demo)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(seed, "layers"))
        model = _BUILDERS[kind](MODELS[kind](**options), image_shape, classes)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)
    return model
