"""Optimizers by name, one instance per key, since keys may be on different servers."""

from testbed.training.optimizers.key import (
    KeyOptimizer,
    ModelOptimizer,
    Norms,
    clip_factor,
    clipped,
    rate_at,
    sum_of_squares,
)

__all__ = ["KeyOptimizer", "ModelOptimizer", "Norms", "clip_factor", "clipped", "rate_at", "sum_of_squares"]
