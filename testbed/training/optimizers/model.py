"""One optimizer for each key of a model, for local steps of a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from testbed.training.learner import State
from testbed.training.optimizers.key import KeyOptimizer


class ModelOptimizer:
    """One ``KeyOptimizer`` per key, for local steps (HFA, ESync, DiLoCo) and for single-process training."""

    def __init__(self, kind: str, options: dict[str, Any], values: Sequence[Tensor]) -> None:
        self.keys = [KeyOptimizer(kind, options, value) for value in values]

    def step(self, gradients: Sequence[Tensor]) -> None:
        """Update every key by one step."""
        for key, gradient in zip(self.keys, gradients, strict=True):
            key.step(gradient)

    def values(self) -> list[Tensor]:
        """Return the current values; the next step changes them in place."""
        return [key.value for key in self.keys]

    def load(self, values: Sequence[Tensor]) -> None:
        """Set the values after a synchronisation; keep momentum and moments."""
        for key, value in zip(self.keys, values, strict=True):
            key.value.copy_(value)

    def state(self) -> State:
        """Return the states of all keys, by ``<key>/<name>``."""
        states = [key.state() for key in self.keys]
        return {f"{number}/{name}": content for number, state in enumerate(states) for name, content in state.items()}

    def load_state(self, state: Mapping[str, Tensor | int | float]) -> None:
        """Restore ``state``."""
        for number, key in enumerate(self.keys):
            prefix = f"{number}/"
            key.load_state({name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)})
