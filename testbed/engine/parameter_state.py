"""One key at the top tier: its value, and what an aggregate does to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor

from testbed.engine import sync_setup
from testbed.plan.model import Plan
from testbed.policy.events import Contribution
from testbed.training.learner import State
from testbed.training.optimizers import KeyOptimizer
from testbed.training.options import MODELS
from testbed.training.options.declarations import SCRIPT


class ParameterState(Protocol):
    """``step`` applies an aggregate, of ``member`` alone if given; ``pulled`` notes which value a member holds."""

    value: Tensor

    def step(self, total: Tensor, member: str | None = None) -> None: ...
    def pulled(self, member: str, value: Tensor) -> None: ...
    def state(self) -> State: ...
    def load_state(self, state: Mapping[str, Any]) -> None: ...


class OverwriteUpdate:
    """The aggregate is the new value: a mean of models (HFA), or the sum for the workers' own optimizers."""

    def __init__(self, value: Tensor) -> None:
        self.value = value.clone()

    def step(self, total: Tensor, member: str | None = None) -> None:
        self.value = total

    def pulled(self, member: str, value: Tensor) -> None:
        pass

    def state(self) -> State:
        return {"value": self.value}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.value = state["value"].clone()


def parameter_state_maker(plan: Plan) -> Callable[[Tensor], ParameterState]:
    """Return what makes the state of a key from its first value: an optimizer, or an overwriting update."""
    algorithm, options = sync_setup.worker_sync(plan)
    outer = algorithm.outer_optimizer(options)
    if outer is not None:
        return lambda value: KeyOptimizer(*outer, value)
    optimizer = plan.technique.optimizer
    is_script = MODELS[plan.training.model.kind].takes == SCRIPT  # which may name an optimizer with its first values
    models = sync_setup.contribution_of(plan) is Contribution.MODEL
    if is_script or models or optimizer.options.get("at") == "worker":
        return OverwriteUpdate
    return lambda value: KeyOptimizer(optimizer.kind, optimizer.options, value)
