"""``GeoOptimizer``: any torch optimizer, synchronised over the workers of all data centres."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from testbed.errors import ScenarioError
from testbed.kvstore.checkpoint import load_objects, saved_objects
from testbed.kvstore.store import KVStore, connect
from testbed.kvstore.travelling import (
    dense,
    from_wire,
    held_by_float32,
    refuse_unless_float32_holds,
    refuse_without_numbers,
    to_wire,
)
from testbed.training.options import OPTIMIZERS

_ELSEWHERE = "use a synchronisation that waits for all (fsa, bsp, hfa, diloco, esync)"


class GeoOptimizer(torch.optim.Optimizer):
    """Wraps any torch optimizer, and synchronises all workers of all data centres as the scenario's ``sync`` says.

        model = torch.nn.Linear(784, 10)
        optimizer = GeoOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
        for inputs, labels in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()

    fsa, bsp               ``step`` averages the gradients of all workers, then each worker makes the optimizer's step
    mixedsync, tap, ssp    no worker waits for all, so the optimizer runs on the servers (SGD, Adam, AdamW only)
    hfa, esync, diloco     ``step`` is local; after a number of steps, models are averaged

    ``param_groups`` and ``state`` are those of the wrapped optimizer, so ``state_dict``, ``load_state_dict``, hooks,
    learning-rate schedulers and gradient clipping work as with that optimizer. If the optimizer runs on the servers,
    its state is there, and ``step`` raises if a parameter group has changed.

    optimizer  the torch optimizer
    store      the store, by default ``connect()``
    model      the module to train. If it is given, all its parameters are shared, so that ``add_param_group`` may later
               add parameters that the optimizer does not have yet (layers that are unfrozen)
    buffers    for buffers of ``model``, such as those of batch normalisation. ``keep``: every worker keeps its own.
               ``average``: each exchange replaces floating-point buffers by their mean over all workers

    clip_norm  largest L2 norm of the gradient of all parameters together in a step (0: no limit). It clips the mean
               gradient of all workers, as ``clip_grad_norm_`` with DDP does; if steps are local, the worker's own
               gradient. In contrast, ``clip_grad_norm_`` in the script clips each worker's gradient before the mean

    With ``torch.amp.GradScaler``, a worker whose gradients are not finite contributes zeros to the round, as the others
    wait for its contribution; a local step is left out. The worker's scaler reduces the scale as usual.

    Tensors travel as float32. A parameter of a type that float32 cannot hold, such as float64, is refused unless it is
    frozen. A frozen parameter (``requires_grad=False``) starts with exactly the first worker's value on all workers,
    and then does not travel. It travels from the round in which it requires or has a gradient; all workers must
    unfreeze it before the same step. A parameter that is frozen later keeps its value. (With an overlay that relays,
    all parameters travel in every round.)

    If gradients are exchanged, a parameter whose gradients add up to zero has no gradient in that step, on any worker.
    An optimizer on the servers does not change a parameter if none of the workers in the sum has a gradient for it
    (``None``). Sparse gradients (of ``nn.Embedding``) become dense.
    """

    # makes ``GradScaler.step`` always call ``step``, and set ``found_inf`` and ``grad_scale``
    _step_supports_amp_scaling = True

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        store: KVStore | None = None,
        model: torch.nn.Module | None = None,
        buffers: str = "keep",
        clip_norm: float = 0.0,
    ) -> None:
        self.optimizer = optimizer
        self.store = store or connect()
        if self.store.keys:
            raise ScenarioError(
                "GeoOptimizer: the store already has keys, from another GeoOptimizer or from the script; give all "
                "parameters to one optimizer, as groups of parameters"
            )
        if not 0 <= clip_norm < math.inf:
            raise ScenarioError(f"GeoOptimizer(clip_norm={clip_norm}): write a number above 0, or leave it out")
        self._clip_norm = float(clip_norm)
        self._model = model
        self._job = self.store.job
        self._done = 0
        self._names = _names(optimizer, model)
        parameters = self._trainable_first(optimizer, model)
        # a server that clips by the norm of all gradients waits for all keys in every round
        all_keys = self._job.all_keys or (self._job.at_server and clip_norm > 0)
        travelling = [each for each in parameters if each.requires_grad or all_keys]
        trained = len(travelling)
        averaged = self._averaged(model, buffers)
        # by key. Frozen parameters come last: they travel only after they are unfrozen, the others in every round
        self._tensors = [*parameters[:trained], *averaged, *parameters[trained:]]
        self._together = trained + len(averaged)
        self._buffers = dict(enumerate(averaged, trained))
        self._parameters = {key: each for key, each in enumerate(self._tensors) if key not in self._buffers}
        self._wide = [each for each in parameters if not held_by_float32(each)]  # allowed while they are frozen
        self._steps = self._job.local_steps
        if isinstance(optimizer, torch.optim.LBFGS) and self._job.contribution == "gradient":
            raise ScenarioError(
                "LBFGS needs several gradients a step, but this synchronisation exchanges one; use another"
            )
        self._at_server = server_options(optimizer) if self._job.at_server else None
        if self._at_server:
            kind, options = self._at_server
            if clip_norm and self._job.no_clip_norm:
                raise ScenarioError(f"GeoOptimizer(clip_norm={clip_norm:g}): {self._job.no_clip_norm}")
            self.store.optimize_together(kind, {**options, "clip_norm": clip_norm} if clip_norm else options)
        for key, tensor in enumerate(self._tensors):
            self.store.init(key, to_wire(tensor))
        self.store.together = self._together
        self._declared = False
        super().__init__(cast(Any, optimizer.param_groups), optimizer.defaults)
        self._share()
        self._load(dict(enumerate(self.store.first_values())))
        self._declared = True
        self.store.holds(self._flat, lambda: saved_objects({"optimizer": self.optimizer}, {}), self._rates)
        if self._job.continues and (taken := self.store.take_over()) is not None:
            parameters, state = taken
            self._load(dict(enumerate(parameters)))
            load_objects(state, {"optimizer": self}, generators=False)
        self.store.on_resume.append(self._on_resume)

    def _rates(self) -> str:
        return ", ".join(f"{float(group['lr']):g}" for group in self.param_groups if "lr" in group)

    def _on_resume(self, steps: int) -> None:
        self._steps = steps

    def _averaged(self, model: torch.nn.Module | None, buffers: str) -> list[Tensor]:
        """Return the buffers to average. Raise ``ScenarioError`` if they cannot be averaged over the workers."""
        if buffers not in ("keep", "average"):
            raise ScenarioError(f"GeoOptimizer(buffers={buffers!r}): write 'keep' or 'average'")
        if buffers == "keep":
            return []
        why = ""
        keep = "write buffers='keep'"
        if model is None:
            why = "it does not know them"
            keep = "give it the model: GeoOptimizer(optimizer, store, model=model, …)"
        elif self._job.at_server or self._job.contribution == "delta":
            why = "this synchronisation has no mean over all workers"
            keep += ", or a synchronisation in which all workers wait and push gradients or models"
        elif self._job.memory or self.store.compresses_changes:
            why, keep = "this codec sends changes and keeps the rest back", f"{keep}, or codec: none"
        if why:
            raise ScenarioError(f"GeoOptimizer(buffers='average'): {why}; {keep}")
        assert model is not None
        found = [(f"GeoOptimizer: buffer '{name}'", each) for name, each in model.named_buffers()]
        for name, each in found:
            refuse_without_numbers(name, each)
        found = [(name, each) for name, each in found if each.is_floating_point() and each.numel()]
        for name, each in found:
            refuse_unless_float32_holds(name, each, "write model.float(), or buffers='keep'")
        return [each for _, each in found]

    def _trainable_first(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module | None) -> list[Tensor]:
        """Return all parameters, frozen ones last. Raise ``ScenarioError`` for a parameter that cannot travel."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        known = set(map(id, parameters))
        parameters += [] if model is None else [each for each in model.parameters() if id(each) not in known]
        for parameter in parameters:
            refuse_without_numbers(self._names[id(parameter)], parameter)
            if parameter.requires_grad:
                self._refuse_unless_it_travels(parameter)
        return sorted((each for each in parameters if each.numel()), key=lambda each: not each.requires_grad)

    def _refuse_unless_it_travels(self, parameter: Tensor) -> None:
        cure = "train it as float32 (model.float()), or freeze it (requires_grad=False)"
        refuse_unless_float32_holds(self._names[id(parameter)], parameter, cure)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters of ``model``. Raise ``ScenarioError`` for other parameters.

        The workers agree on the parameters only once, when this object is made.
        """
        if self._declared:
            added = param_group["params"]
            added = [added] if isinstance(added, Tensor) else list(added)
            known = set(map(id, self._parameters.values()))
            if not known.issuperset(id(each) for each in added if each.numel()):
                raise ScenarioError(
                    "add_param_group: the workers have agreed on the parameters already; give the whole model before: "
                    "GeoOptimizer(optimizer, store, model=model)"
                )
            param_group = {**param_group, "params": added}
        super().add_param_group(param_group)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Pass a state that ``load_state_dict`` has read to the wrapped optimizer."""
        self.optimizer.__setstate__(state)
        self._share()

    def _share(self) -> None:
        self.param_groups = self.optimizer.param_groups
        self.state = self.optimizer.state

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Make one training step, and synchronise if the round ends. Return the closure's value, if there is one."""
        if self._job.contribution != "gradient":
            return self._step_locally(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        finite = self._unscale()
        optimized = {id(parameter) for group in self.param_groups for parameter in group["params"]}
        moving = self._moving()
        gradients = {key: each.grad if finite and id(each) in optimized else None for key, each in moving.items()}
        self._check_groups()
        pushed = {
            key: to_wire(torch.zeros_like(moving[key]) if gradient is None else dense(gradient))
            for key, gradient in gradients.items()
        }
        without = [key for key, gradient in gradients.items() if gradient is None] if self._at_server else []
        if not self._loss_is_finite(loss) or not self.store.finite(list(pushed.values()), "gradient"):
            pushed = {key: torch.zeros_like(each) for key, each in pushed.items()}
        buffers = {key: to_wire(buffer) for key, buffer in self._buffers.items()}
        self.store.finite(list(buffers.values()), "buffer", can_be_left_out=False)
        values, _ = self.store.exchange(pushed | buffers, 1, without)
        if self._at_server:
            self._load({key: value for key, value in values.items() if _is_trained(self._tensors[key])})
            return loss
        for key, buffer in self._buffers.items():
            buffer.copy_((values[key] / self._job.workers).view_as(buffer))
        for key, parameter in moving.items():
            if id(parameter) in optimized:
                parameter.grad = self._mean(parameter, values[key])
        self._clip()
        self.optimizer.step()
        return loss

    def finish(self) -> None:
        """End the training (``KVStore.finish``). Worker 0 then has the final model and can score it."""
        values = self.store.finish()
        if values is not None:
            self._load({key: value for key, value in enumerate(values) if _is_trained(self._tensors[key])})

    def _moving(self) -> dict[int, Tensor]:
        """Return the parameters that travel now, by key: all except those that have been frozen since the start."""
        for parameter in self._wide:
            if _is_trained(parameter):
                self._refuse_unless_it_travels(parameter)
        return {key: each for key, each in self._parameters.items() if key < self._together or _is_trained(each)}

    def _mean(self, parameter: Tensor, total: Tensor) -> Tensor | None:
        """Return the mean gradient, or ``None`` if the total is zero, so that torch does not change the parameter.

        Only the total decides, because all workers know it, but not each other's gradients. So a parameter keeps its
        value if it is frozen on all workers, or if its gradients overflow on all of them. The price: if gradients are
        zero on all workers, momentum and weight decay pause.
        """
        if not total.any():
            return None
        return (total / self._job.workers).view_as(parameter).to(parameter.device, parameter.dtype)

    def _step_locally(self, closure: Callable[[], float] | None) -> float | None:
        if self._done == 0:
            self._before: dict[int, Tensor | None] = {}
            self._trained: set[int] = set()
        for key, parameter in self._moving().items():
            if key not in self._before:
                self._before[key] = to_wire(parameter) if self._job.contribution == "delta" else None
            if _is_trained(parameter):
                self._trained.add(key)
        loss = None
        if self._unscale():
            if closure is None:
                self._leave_out_if_not_finite()
                self._clip()
            loss = self.optimizer.step(None if closure is None else partial(self._checked, closure))
        self._done += 1
        if self._done < self._steps:
            self.store.step()
            return loss
        pushed = {}
        for key in (*self._before, *self._buffers):
            old = self._before.get(key)
            new = to_wire(self._tensors[key])
            pushed[key] = (new if old is None else old - new) * self._job.weight
        of_changes = self._job.contribution == "delta"
        if not self.store.finite(list(pushed.values()), self._job.contribution, can_be_left_out=of_changes):
            pushed = {key: torch.zeros_like(each) for key, each in pushed.items()}
        values, self._steps = self.store.exchange(pushed, self._steps)
        # leave out parameters that were frozen meanwhile: the mean of equal values may differ from them in the last bit
        self._load({key: value for key, value in values.items() if key in self._trained or key in self._buffers})
        self._done = 0
        return loss

    def _checked(self, closure: Callable[[], float]) -> float:
        """Call the closure of a local step. Set gradients to zero if they or the loss are not finite."""
        loss = closure()
        if self._loss_is_finite(loss):
            self._leave_out_if_not_finite()
        else:
            self._leave_out()
        self._clip()
        return loss

    def _clip(self) -> None:
        """Do as ``clip_grad_norm_(model.parameters(), clip_norm)``, in the model's order if the model is known."""
        if self._clip_norm:
            optimized = [parameter for group in self.param_groups for parameter in group["params"]]
            known = set(map(id, optimized))
            in_order = optimized if self._model is None else [p for p in self._model.parameters() if id(p) in known]
            torch.nn.utils.clip_grad_norm_(in_order, self._clip_norm)

    def _loss_is_finite(self, loss: float | None) -> bool:
        if loss is None:
            return True
        return self.store.finite([torch.as_tensor(loss).detach()], "loss", where="the closure's value")

    def _leave_out_if_not_finite(self) -> None:
        gradients = [each.grad for each in self._parameters.values() if each.grad is not None]
        if not self.store.finite([dense(each) for each in gradients], "gradient"):
            self._leave_out()

    def _leave_out(self) -> None:
        for parameter in self._parameters.values():
            if parameter.grad is not None:
                parameter.grad = torch.zeros_like(parameter.grad)

    def _unscale(self) -> bool:
        """Divide gradients by the scale that a ``GradScaler`` has set. Return whether all of them are finite."""
        found = getattr(self, "found_inf", None)
        scale = getattr(self, "grad_scale", None)
        if found is not None and found.item():
            return False
        for parameter in self._parameters.values():
            if scale is not None and parameter.grad is not None:
                parameter.grad.div_(scale.to(parameter.grad.device))
        return True

    def _check_groups(self) -> None:
        if self._at_server and server_options(self.optimizer) != self._at_server:
            raise ScenarioError(
                "the script or a scheduler has changed the optimizer, which this synchronisation runs on the servers "
                f"as it was at the start; leave it unchanged, or {_ELSEWHERE}"
            )

    def _flat(self) -> list[Tensor]:
        return list(map(to_wire, self._tensors))

    def _load(self, values: Mapping[int, Tensor]) -> None:
        for key, value in values.items():
            from_wire(self._tensors[key], value)


def _is_trained(parameter: Tensor) -> bool:
    return parameter.requires_grad or parameter.grad is not None


def _names(optimizer: torch.optim.Optimizer, model: torch.nn.Module | None) -> dict[int, str]:
    """Return how messages name each parameter, by ``id``: its name if model or optimizer know it, else its place."""
    names = {}
    for number, group in enumerate(optimizer.param_groups):
        given = group.get("param_names")
        for index, parameter in enumerate(group["params"]):
            name = f"'{given[index]}'" if given else f"{index} of the optimizer's group {number}"
            names[id(parameter)] = f"GeoOptimizer: parameter {name}"
    for text, parameter in () if model is None else model.named_parameters():
        names[id(parameter)] = f"GeoOptimizer: parameter '{text}'"
    return names


def server_options(optimizer: torch.optim.Optimizer) -> tuple[str, dict[str, Any]]:
    """Return the kind and options of the servers' optimizer that makes the same steps as this torch optimizer.

    Raise ``ScenarioError`` if there is none.
    """
    kinds = {torch.optim.SGD: "sgd", torch.optim.AdamW: "adamw", torch.optim.Adam: "adam"}
    decoupled = type(optimizer) is torch.optim.Adam and optimizer.param_groups[0].get("decoupled_weight_decay")
    kind = kinds.get(torch.optim.AdamW if decoupled else type(optimizer))
    if kind is None or len(optimizer.param_groups) != 1:
        raise ScenarioError(
            "this synchronisation runs the optimizer on the servers, which know SGD, Adam and AdamW with one group of "
            f"parameters; use one of them, or {_ELSEWHERE}"
        )
    group = optimizer.param_groups[0]
    unknown = [name for name in ("amsgrad", "maximize", "dampening") if group.get(name)]
    if unknown:
        raise ScenarioError(
            f"this synchronisation runs the optimizer on the servers, which do not know {', '.join(unknown)}; "
            f"leave it out, or {_ELSEWHERE}"
        )
    theirs = {**group, "learning_rate": group["lr"], "epsilon": group.get("eps")}
    theirs |= zip(("beta1", "beta2"), group.get("betas", ()), strict=False)  # SGD has none
    known = {field.name for field in fields(OPTIMIZERS[kind])}
    found = {name: value for name, value in theirs.items() if name in known and value is not None}
    return kind, {name: value.item() if isinstance(value, Tensor) else value for name, value in found.items()}
