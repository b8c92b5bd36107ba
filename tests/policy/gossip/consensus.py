"""Weights as matrices, what mixing needs of them, and how far models are from their average."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from testbed.policy.gossip.mixing import Mixing

Matrix = NDArray[np.float64]


def consensus_distance(models: Sequence[Sequence[float]]) -> float:
    """√(1/N Σ |x_i − x̄|²) of N models, or of sketches of them (``engine.gossip.model``)."""
    count = len(models)
    mean = [sum(column) / count for column in zip(*models, strict=True)]
    return sqrt(sum((x - m) ** 2 for model in models for x, m in zip(model, mean, strict=True)) / count)


def matrix(mixing: Mixing, round_: int) -> Matrix:
    """Row i: the weights with which rank i takes the models of all."""
    weights = np.zeros((mixing.size, mixing.size))
    for rank in range(mixing.size):
        part = mixing.part(round_, rank)
        weights[rank, rank] = part.keep
        for other, weight in part.receives:
            weights[rank, other] += weight
    return weights


def is_column_stochastic(weights: Matrix, tolerance: float = 1e-12) -> bool:
    """Nothing negative, and all that a rank gives away adds up to what it had: the sum of all models stays."""
    return bool((weights >= -tolerance).all() and np.abs(weights.sum(axis=0) - 1).max() <= tolerance)


def is_doubly_stochastic(weights: Matrix, tolerance: float = 1e-12) -> bool:
    """Rows too: equal models stay equal, without any correction."""
    return is_column_stochastic(weights, tolerance) and bool(np.abs(weights.sum(axis=1) - 1).max() <= tolerance)


def check(mixing: Mixing, *, doubly: bool) -> None:
    """``ValueError`` when weights do not add up, or messages sent and expected differ."""
    for round_ in range(mixing.period):
        weights = matrix(mixing, round_)
        if not (is_doubly_stochastic(weights) if doubly else is_column_stochastic(weights)):
            raise ValueError(f"weights of round {round_} do not add up to one")
        sent = {(rank, to) for rank in range(mixing.size) for to in mixing.part(round_, rank).sends}
        taken = {(source, rank) for rank in range(mixing.size) for source, _ in mixing.part(round_, rank).receives}
        if sent != taken:
            raise ValueError(f"round {round_}: sent but not expected, or the other way round: {sorted(sent ^ taken)}")
