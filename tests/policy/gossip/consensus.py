"""How far models are from their average: the root of the mean squared distance."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt


def consensus_distance(models: Sequence[Sequence[float]]) -> float:
    """√(1/N Σ |x_i − x̄|²) of N models, or of sketches of them (``engine.gossip.sketch``)."""
    count = len(models)
    mean = [sum(column) / count for column in zip(*models, strict=True)]
    return sqrt(sum((x - m) ** 2 for model in models for x, m in zip(model, mean, strict=True)) / count)
