"""The value of one key, and the optimizer that changes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from inspect import unwrap
from typing import Any, NamedTuple

import torch
from torch import Tensor

from testbed.costs import Cost, cost_of
from testbed.errors import ScenarioError
from testbed.key_shape import KeyShape
from testbed.state import below, under
from testbed.training.learner import State
from testbed.training.optimizers.adam import Adam
from testbed.training.optimizers.compensation import Compensation
from testbed.training.optimizers.muon import make_muon
from testbed.training.optimizers.outer import BufferedNesterov, OtherNesterov
from testbed.training.optimizers.sign import SignDescent
from testbed.training.options import OPTIMIZERS
from testbed.training.options import optimizers as options_of
from testbed.training.options.optimizers import OptimizerOptions

_UNKNOWN_ELEMENT_S = 4e-9  # for an optimizer without a row in the table of costs: four reads and writes


class Norms(NamedTuple):
    """L2 norms of a whole tensor and of its whole gradient, for a key that is a slice of it."""

    value: float
    gradient: float


def sum_of_squares(tensor: Tensor) -> float:
    """Return the square of the L2 norm, in double precision; 0 for a tensor of sizes only."""
    return 0.0 if tensor.is_meta else float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) ** 2


def clip_factor(squares: Sequence[float], limit: float, workers: float = 1.0) -> float:
    """Return the factor that scales the gradient of all keys down, as ``torch.nn.utils.clip_grad_norm_`` does.

    squares  the squared norm of each key's gradient, which is a sum over ``workers``
    limit    the largest norm of the mean over the workers, all keys together
    """
    norm = math.sqrt(math.fsum(squares)) / workers
    return min(1.0, limit / (norm + 1e-6))


class Lars(torch.optim.Optimizer):
    """You, Gitman, Ginsburg, 2017, algorithm 1: v ← m·v + η·λ·(g + β·w), w ← w − v, with λ = trust·‖w‖ / (‖g‖ + β·‖w‖).

    λ is 1 if a norm is 0 (biases start at 0), and for tensors with fewer than ``adapt_from`` elements. Norms are those
    of the given tensor. If it is a slice, the caller can pass the norms of the whole tensor as the group's ``norms``,
    and then applies ``adapt_from`` itself.
    """

    def __init__(self, value: Tensor, momentum: float, weight_decay: float, trust: float, adapt_from: int) -> None:
        defaults = {
            "lr": 0.0,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust": trust,
            "adapt_from": adapt_from,
            "norms": None,
        }
        super().__init__([value], defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        group = self.param_groups[0]
        (value,) = group["params"]
        gradient = value.grad
        direction = gradient.add(value, alpha=group["weight_decay"]).mul_(group["lr"] * _ratio(group, value, gradient))
        state = self.state[value]
        if "momentum_buffer" in state:
            direction = state["momentum_buffer"].mul_(group["momentum"]).add_(direction)
        state["momentum_buffer"] = direction
        value.sub_(direction)


def _norms(value: Tensor, gradient: Tensor) -> Norms:
    return Norms(torch.linalg.vector_norm(value).item(), torch.linalg.vector_norm(gradient).item())


def _ratio(group: dict[str, Any], value: Tensor, gradient: Tensor) -> float:
    norms = group["norms"]
    if norms is None:
        if value.numel() < group["adapt_from"]:
            return 1.0
        norms = _norms(value, gradient)
    if norms.value == 0 or norms.gradient == 0:
        return 1.0
    return float(group["trust"] * norms.value / (norms.gradient + group["weight_decay"] * norms.value))


def rate_at(options: OptimizerOptions, update: int) -> float:
    """Return the learning rate of update number ``update`` (from 0) of a key.

    Warm-up rises linearly and reaches the full rate at update ``warmup - 1`` (Goyal et al., 2017). After it:
    ``step`` multiplies by ``decay`` every ``period`` updates; ``cosine`` falls to ``decay`` of the rate within
    ``period`` updates and stays there (Loshchilov and Hutter, 2017, without restarts); ``inverse_sqrt`` falls with the
    root of all updates, warm-up included (Vaswani et al., 2017).
    """
    done = update + 1
    if done <= options.warmup:
        return options.learning_rate * done / options.warmup
    return options.learning_rate * _factor(options, update - options.warmup, done)


def _factor(options: OptimizerOptions, since_warmup: int, done: int) -> float:
    if options.schedule == "step":
        return float(options.decay ** (since_warmup // options.period))
    if options.schedule == "cosine":
        part = min(since_warmup / options.period, 1.0)
        return options.decay + (1 - options.decay) * (1 + math.cos(math.pi * part)) / 2
    if options.schedule == "inverse_sqrt":
        return math.sqrt(max(options.warmup, 1) / done)
    assert options.schedule == "constant", options.schedule
    return 1.0


def _sgd(options: options_of.Sgd | options_of.DcAsgd, value: Tensor) -> torch.optim.Optimizer:
    nesterov = isinstance(options, options_of.Sgd) and options.nesterov
    if nesterov and not options.momentum:
        raise ScenarioError("optimizer.nesterov: has no effect without momentum; write momentum: 0.9")
    return torch.optim.SGD(
        [value],
        lr=options.learning_rate,
        momentum=options.momentum,
        nesterov=nesterov,
        weight_decay=options.weight_decay,
        foreach=False,
    )


def _adam(options: options_of.Adam, value: Tensor) -> torch.optim.Optimizer:
    return Adam(
        [value],
        lr=options.learning_rate,
        betas=(options.beta1, options.beta2),
        eps=options.epsilon,
        weight_decay=options.weight_decay,
        decoupled_weight_decay=isinstance(options, options_of.AdamW),
    )


def _lars(options: options_of.LarsOptions, value: Tensor) -> torch.optim.Optimizer:
    return Lars(value, options.momentum, options.weight_decay, options.trust, options.adapt_from)


def _nesterov(options: options_of.Nesterov, value: Tensor) -> torch.optim.Optimizer:
    momentum = options.momentum
    if momentum and options.definition != options_of.TORCH:
        return OtherNesterov(options, value)
    return torch.optim.SGD([value], lr=options.learning_rate, momentum=momentum, nesterov=momentum > 0, foreach=False)


_MAKERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": _sgd,
    "adam": _adam,
    "adamw": _adam,
    "lars": _lars,
    "dcasgd": _sgd,
    "nesterov": _nesterov,
    "delayed_nesterov": BufferedNesterov,
    "signsgd": lambda options, value: SignDescent(value, options.weight_decay),
    "muon": make_muon,
}


class KeyOptimizer:
    """The value of one key (flat float32), which steps change in place, and the state of its optimizer.

    cost  the cost of one step, by the table of measured costs
    """

    def __init__(self, kind: str, options: dict[str, Any], value: Tensor, shape: KeyShape | None = None) -> None:
        """``shape``: the shape of the tensor before it was flattened; by default a vector."""
        self.value = value.detach().clone()
        self._shape = shape or KeyShape((value.numel(),))
        self.updates = 0
        self._options = OPTIMIZERS.options(kind, options)
        momentum = " with momentum" if getattr(self._options, "momentum", 0.0) else ""
        self.cost: Cost | None = cost_of(kind + momentum, "step", _UNKNOWN_ELEMENT_S)
        self._kind = kind
        if not self.value.is_meta:  # a meta value needs no optimizer
            _ = self._optimizer
        self._compensation: Compensation | None = None
        if isinstance(self._options, options_of.DcAsgd):
            self._compensation = Compensation(self._options, self.value)

    @cached_property
    def _optimizer(self) -> torch.optim.Optimizer:
        make = _MAKERS.get(self._kind) or OPTIMIZERS[self._kind].make  # a user's own optimizer
        by_shape = (self._shape,) if OPTIMIZERS[self._kind].by_shape else ()
        made: torch.optim.Optimizer = make(self._options, self.value, *by_shape)
        return made

    @cached_property
    def _step_in_place(self) -> Callable[[], object]:
        """The optimizer's step without torch's wrapper, whose profiler and hooks cost as much as 10 000 elements.

        For a user's own optimizer, it is the complete ``step``.
        """
        optimizer = self._optimizer
        if self._kind in _MAKERS:
            return partial(unwrap(type(optimizer).step), optimizer)
        return optimizer.step

    def pulled(self, member: str, value: Tensor) -> None:
        """Record that ``member`` computes its next gradient at ``value``, a copy that does not change."""
        if self._compensation is not None and not value.is_meta:
            self._compensation.pulled(member, value)

    def forget(self, member: str) -> None:
        """Drop the value that ``pulled`` has recorded for ``member``, which will compute no more gradients at it."""
        if self._compensation is not None:
            self._compensation.forget(member)

    @property
    def clip_norm(self) -> float:
        """Return the largest L2 norm of the gradient of all keys together; 0: unlimited.

        The caller that has the gradients of all keys scales them.
        """
        return float(self._options.clip_norm)

    def step(self, gradient: Tensor, member: str | None = None, norms: Norms | None = None) -> None:
        """Update the value by one step.

        gradient  flat float32 of the value's size; an outer gradient is old values minus new ones
        member    the sender, which computed the gradient at the value that it last pulled (DC-ASGD); ``None``: the
                  gradient was computed at the current value
        norms     the norms of the whole tensor, if this key is a slice (LARS); without them, each slice has its own λ
        """
        rate = rate_at(self._options, self.updates)
        self.updates += 1
        if self.value.is_meta:
            return
        self._optimizer.param_groups[0].update(lr=rate, norms=norms)
        gradient = self._clipped(gradient.to(self.value.device))
        if self._compensation is not None:
            gradient = self._compensation(gradient, self.value, member)
        self.value.grad = gradient
        with torch.no_grad():
            self._step_in_place()
        self.value.grad = None

    def norms(self, gradient: Tensor, start: int = 0) -> Norms:
        """Return the L2 norms of the value and of the gradient, the latter clipped element by element as in ``step``.

        ``gradient`` may cover only a part of the elements, from ``start`` on; then the value's norm covers the same
        part. The squared norm of a tensor is the sum of the squared norms of its slices.
        """
        value = self.value[start : start + gradient.numel()]
        return _norms(value, self._clipped(gradient.to(self.value.device)))

    def state(self) -> State:
        """Return a copy of the complete state, by name."""
        state: State = {"value": self.value.clone(), "updates": self.updates}
        if not self.value.is_meta:
            for name, content in self._optimizer.state[self.value].items():
                if content is not None:
                    state[f"optimizer/{name}"] = content.clone() if isinstance(content, Tensor) else content
        if self._compensation is not None:
            state.update(self._compensation.state())
        return state

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor | int | float]) -> None:
        """Restore ``state`` into a key of the same kind and size."""
        value = state["value"]
        assert isinstance(value, Tensor) and value.numel() == self.value.numel(), "the state of another key"
        self.value.copy_(value)
        self.updates = int(state["updates"])
        self._optimizer.state[self.value] = {
            name: _beside(self.value, content) if isinstance(content, Tensor) else content
            for name, content in below("optimizer", state).items()
        }
        if self._compensation is not None:
            self._compensation.load_state(state)

    def _clipped(self, gradient: Tensor) -> Tensor:
        clip = self._options.clip
        return gradient.clamp(-clip, clip) if clip > 0 else gradient


def _beside(value: Tensor, content: Tensor) -> Tensor:
    """Return a copy of a tensor of optimizer state: moments on the value's device, counters on their own."""
    return content.to(value.device, copy=True) if content.numel() == value.numel() else content.clone()


def clipped(keys: Sequence[KeyOptimizer], gradients: Sequence[Tensor], workers: float = 1.0) -> Sequence[Tensor]:
    """Return the gradients of all keys of a model, scaled down if longer than ``clip_norm``; see ``clip_factor``."""
    limit = keys[0].clip_norm if keys else 0.0
    if not limit:
        return gradients
    factor = clip_factor([sum_of_squares(each) for each in gradients], limit, workers)
    return gradients if factor == 1.0 else [gradient * factor for gradient in gradients]


class ModelOptimizer:
    """One ``KeyOptimizer`` per key, for local steps (HFA, ESync, DiLoCo) and for single-process training.

    On a GPU, all keys are joined into one, unless the optimizer needs each whole tensor. A few large kernels then
    compute the same numbers as many small ones.
    """

    def __init__(
        self, kind: str, options: dict[str, Any], values: Sequence[Tensor], shapes: Sequence[KeyShape] = ()
    ) -> None:
        on_host = not values or values[0].is_cpu or values[0].is_meta
        self._joined = None if on_host or OPTIMIZERS[kind].whole_tensors else [value.numel() for value in values]
        keys = self._as_keys(values)
        known = shapes if len(shapes) == len(keys) else [None] * len(keys)
        self.keys = [KeyOptimizer(kind, options, value, shape) for value, shape in zip(keys, known, strict=True)]

    def _as_keys(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return tensors if self._joined is None else [torch.cat(list(tensors))]

    def step(self, gradients: Sequence[Tensor], workers: float = 1.0) -> None:
        """Step with the gradients of all keys: of one worker, their mean, or their sum over ``workers`` workers."""
        for key, gradient in zip(self.keys, clipped(self.keys, self._as_keys(gradients), workers), strict=True):
            key.step(gradient)

    def values(self) -> list[Tensor]:
        """Return the current values; the next step changes them in place."""
        values = [key.value for key in self.keys]
        return values if self._joined is None else list(torch.split(values[0], self._joined))

    def begin_at(self, update: int) -> None:
        """Set the position in the learning-rate schedule, as if ``update`` updates had been made."""
        for key in self.keys:
            key.updates = update

    def load(self, values: Sequence[Tensor]) -> None:
        """Set the values after a synchronisation; keep momentum and moments."""
        for mine, value in zip(self.values(), values, strict=True):
            mine.copy_(value)

    def state(self) -> State:
        """Return the states of all keys, by ``<key>/<name>``."""
        states = [key.state() for key in self.keys]
        if self._joined is not None:
            states = _split(states[0], self._joined)
        state: State = {}
        for number, each in enumerate(states):
            state |= under(str(number), each)
        return state

    def load_state(self, state: Mapping[str, Tensor | int | float]) -> None:
        states: list[State] = [below(str(number), state) for number in range(len(self._joined or self.keys))]
        if self._joined is not None:
            states = [_merged(states, self._joined)]
        for key, each in zip(self.keys, states, strict=True):
            key.load_state(each)


def _split(state: State, sizes: Sequence[int]) -> list[State]:
    """Split the state of joined keys into the states of the single keys, whose ``sizes`` are given."""
    states: list[State] = [{} for _ in sizes]
    for name, content in state.items():
        whole = isinstance(content, Tensor) and content.numel() == sum(sizes)
        parts = torch.split(content, list(sizes)) if whole else [content] * len(sizes)  # type: ignore[arg-type]
        for each, part in zip(states, parts, strict=True):
            each[name] = part.clone() if isinstance(part, Tensor) else part
    return states


def _merged(states: Sequence[State], sizes: Sequence[int]) -> State:
    """Inverse of ``_split``."""
    merged: State = {}
    for name, content in states[0].items():
        each = [state[name] for state in states]
        whole = isinstance(content, Tensor) and content.numel() == sizes[0] and content.dim() > 0
        merged[name] = torch.cat(each) if whole else content  # type: ignore[arg-type]
    return merged
