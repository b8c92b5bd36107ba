"""Optimizers by name, one instance per key, since keys may be on different servers."""

from testbed.training.optimizers.key import KeyOptimizer
from testbed.training.optimizers.lars import Norms
from testbed.training.optimizers.model import ModelOptimizer
from testbed.training.optimizers.schedule import rate_at

__all__ = ["KeyOptimizer", "ModelOptimizer", "Norms", "rate_at"]
