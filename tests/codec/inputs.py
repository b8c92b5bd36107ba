"""The fourteen kinds of tensor that a selector must get right; MSTopK as published fails on half of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from testbed.codec.selectors.sources import Floats

Make = Callable[[np.random.Generator, int], np.ndarray]


def _one_set(make: Make, number: float) -> Make:
    def made(random: np.random.Generator, size: int) -> np.ndarray:
        tensor = make(random, size)
        tensor[size // 3] = number
        return tensor

    return made


def _normal(random: np.random.Generator, size: int) -> np.ndarray:
    return random.standard_normal(size)


def _large_layer(random: np.random.Generator, size: int) -> np.ndarray:
    tensor = random.standard_normal(size)
    tensor[: size // 200] *= 1000
    return tensor


def _mostly_zero(random: np.random.Generator, size: int) -> np.ndarray:
    return np.where(random.random(size) < 0.0005, random.standard_normal(size), 0.0)


FINITE: dict[str, Make] = {
    "normal": _normal,
    "Laplace": lambda random, size: random.laplace(size=size),
    "Student-t(3)": lambda random, size: random.standard_t(3, size),
    "log-normal 4": lambda random, size: random.lognormal(0, 4, size),
    "log-normal 6": lambda random, size: random.lognormal(0, 6, size),
    "one large layer": _large_layer,
    "outlier 1e6": _one_set(_normal, 1e6),
    "outlier 1e30": _one_set(_normal, -1e30),
    "constant": lambda random, size: np.full(size, -0.25),
    "zeros": lambda random, size: np.zeros(size),
    "99.95 % zeros": _mostly_zero,
    "few integers": lambda random, size: random.integers(-3, 4, size).astype(float),
}
NOT_FINITE: dict[str, Make] = {"one NaN": _one_set(_normal, np.nan), "one infinity": _one_set(_normal, -np.inf)}


def make(name: str, size: int, seed: int = 0) -> Floats:
    """The tensor of that name."""
    tensor: Floats = (FINITE | NOT_FINITE)[name](np.random.default_rng(seed), size).astype(np.float32)
    return tensor
