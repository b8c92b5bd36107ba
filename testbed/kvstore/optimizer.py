"""Any torch optimizer, over all workers of all data centres."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from testbed.errors import ScenarioError
from testbed.kvstore.store import KVStore, connect


class GeoOptimizer(torch.optim.Optimizer):
    """Any torch optimizer, over all workers of all data centres, synchronised as the scenario's ``sync`` says.

    fsa, bsp               ``step`` takes the mean of all workers' gradients, then the optimizer's own step, everywhere
    mixedsync, tap, ssp    no worker waits for all, so the optimizer runs on the servers (SGD, Adam, AdamW only)
    hfa, esync, diloco     ``step`` is local; after a number of steps, models are averaged

    Learning-rate schedulers work as usual, except if the optimizer runs on the servers.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, store: KVStore | None = None) -> None:
        self.optimizer, self.store = optimizer, store or connect()
        everything = (parameter for group in optimizer.param_groups for parameter in group["params"])
        self._parameters = [parameter for parameter in everything if parameter.numel()]
        self._job, self._done = self.store.job, 0
        self._steps = self._job.local_steps
        if self._job.at_server:
            kind, options = _server_options(optimizer)
            # the servers' gradients are sums over what is pushed together: one worker's, or one data centre's
            self.store.set_optimizer(kind, **options)
        for number, parameter in enumerate(self._parameters):
            self.store.init(number, parameter)
        super().__init__(cast(Any, optimizer.param_groups), optimizer.defaults)
        self._load(self.store.first_values())
        self._before = self._flat()
        self.store.holds(self._flat)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Make one training step, and synchronise if the round ends."""
        loss = closure() if closure else None
        if self._job.contribution != "gradient":
            self._step_locally()
            return loss
        gradients = [self._gradient(parameter) for parameter in self._parameters]
        values, _ = self.store.exchange(gradients, 1)
        if self._job.at_server:
            self._load(values)
            return loss
        for parameter, total in zip(self._parameters, values, strict=True):
            parameter.grad = (total / self._job.workers).view_as(parameter).to(parameter.device)
        self.optimizer.step()
        return loss

    def _step_locally(self) -> None:
        self.optimizer.step()
        self._done += 1
        if self._done < self._steps:
            self.store.step()
            return
        now, weight = self._flat(), self._job.weight
        if self._job.contribution == "delta":
            pushed = [(old - new) * weight for old, new in zip(self._before, now, strict=True)]
        else:
            pushed = [value * weight for value in now]
        values, self._steps = self.store.exchange(pushed, self._steps)
        self._load(values)
        self._before, self._done = self._flat(), 0

    @staticmethod
    def _gradient(parameter: Tensor) -> Tensor:
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        return gradient.detach().reshape(-1).to("cpu", torch.float32, copy=True)

    def _flat(self) -> list[Tensor]:
        return [parameter.detach().reshape(-1).to("cpu", torch.float32, copy=True) for parameter in self._parameters]

    @torch.no_grad()
    def _load(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value.view_as(parameter))


def _server_options(optimizer: torch.optim.Optimizer) -> tuple[str, dict[str, Any]]:
    kinds = {torch.optim.SGD: "sgd", torch.optim.AdamW: "adamw", torch.optim.Adam: "adam"}
    kind = kinds.get(type(optimizer))
    if kind is None or len(optimizer.param_groups) != 1:
        raise ScenarioError(
            "this synchronisation runs the optimizer on the servers, which know SGD, Adam and AdamW with one group of "
            "parameters; use one of them, or a synchronisation that waits for all (fsa, bsp, hfa, diloco, esync)"
        )
    group = optimizer.param_groups[0]
    unknown = [name for name in ("amsgrad", "maximize", "dampening") if group.get(name)]
    if unknown:
        raise ScenarioError(
            f"this synchronisation runs the optimizer on the servers, which do not know {', '.join(unknown)}; "
            "leave it out, or use a synchronisation that waits for all (fsa, bsp, hfa, diloco, esync)"
        )
    options: dict[str, Any] = {"learning_rate": group["lr"], "weight_decay": group["weight_decay"]}
    if isinstance(optimizer, torch.optim.SGD):
        return kind, {**options, "momentum": group["momentum"], "nesterov": group["nesterov"]}
    beta1, beta2 = group["betas"]
    return kind, {**options, "beta1": beta1, "beta2": beta2, "epsilon": group["eps"]}
