"""Optimizers by name, one instance per key, since keys may be on different servers."""

from testbed.training.optimizers.key import KeyOptimizer, ModelOptimizer, Norms, rate_at

__all__ = ["KeyOptimizer", "ModelOptimizer", "Norms", "rate_at"]
