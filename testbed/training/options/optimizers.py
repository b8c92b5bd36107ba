"""Options of the optimizers, and of the learning-rate schedule that any of them may follow.

Every optimizer descends along a gradient, or an outer gradient (old values minus new ones). With FSA the gradient is
the sum over all workers of their batches' mean gradients, as in GeoMX. ``clip`` limits the gradient that the optimizer
is given, ``clip_norm`` the mean gradient, wherever the optimizer runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from testbed.axes import Axis, option
from testbed.training.options.declarations import OptimizerDeclarations

SCHEDULES = ("constant", "step", "cosine", "inverse_sqrt")
AUTO = "auto"
SENDER = "sender"
ANY = "any"
TORCH = "torch"
SUTSKEVER = "sutskever"
AVERAGED = "averaged"
_MOMENTUM: dict[str, Any] = {"help": "heavy-ball momentum", "min": 0, "max": 1}
_WEIGHT_DECAY: dict[str, Any] = {"help": "factor of the value that is added to the gradient", "min": 0, "max": 1}


def _learning_rate(default: float) -> Any:
    return option(default, "largest step size", above=0, max=100)


def _at(*places: str) -> Any:
    text = (
        "global: on the global servers (without servers: on every worker), with the sum of all gradients; worker: on "
        "every worker, for local steps or with the mean of all gradients; auto: where the techniques need it, which is "
        "on the workers for local steps and for sums of sparse gradients, else global"
    )
    return option(AUTO, text, choices=(AUTO, *places))


@dataclass(frozen=True, slots=True)
class OptimizerOptions(OptimizerDeclarations):
    """Options of all optimizers. An *update* is one step of one key; schedules count updates, from 0."""

    learning_rate: float = _learning_rate(0.01)
    schedule: str = option("constant", "how the step size falls after the warm-up", choices=SCHEDULES)
    warmup: int = option(0, "updates in which the step size rises linearly", min=0, max=10**9)
    period: int = option(1000, "updates between two steps, or until the cosine's end", min=1, max=10**9)
    decay: float = option(0.1, "step: factor at each step; cosine: factor at the end", min=0, max=1)
    clip: float = option(0.0, "gradients are clipped to [-clip, clip], element by element; 0: never", min=0, max=1e9)
    clip_norm: float = option(
        0.0,
        "the mean gradient of all parameters is scaled down to this L2 norm, if it is longer; 0: never",
        min=0,
        max=1e9,
    )

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield option, problem and cure for each option that has no effect or excludes another."""
        if self.clip and self.clip_norm:
            yield "clip_norm", "the elements of gradients are clipped already ('clip')", "write one of the two"
        if self.schedule in ("constant", "inverse_sqrt"):
            for name in ("period", "decay"):
                if not self._is_default(name):
                    problem = f"has no effect with schedule '{self.schedule}'"
                    yield name, problem, "write schedule: step, or cosine"

    def _is_default(self, name: str) -> bool:
        default: object = next(option.default for option in fields(self) if option.name == name)
        return bool(getattr(self, name) == default)


@dataclass(frozen=True, slots=True)
class Sgd(OptimizerOptions):
    """Stochastic gradient descent. The gradient is the sum over all workers of mean gradients."""

    momentum: float = option(0.0, **_MOMENTUM)
    nesterov: bool = option(False, "look ahead along the momentum (Sutskever et al., 2013)")
    weight_decay: float = option(0.0, **_WEIGHT_DECAY)
    at: str = _at("global", "worker")

    @classmethod
    def rests(cls, options: Any) -> bool:
        return not (options.momentum or options.weight_decay)

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if self.nesterov and not self.momentum:
            yield "nesterov", "has no effect without momentum", "write momentum: 0.9"
        yield from OptimizerOptions.problems(self)


@dataclass(frozen=True, slots=True)
class Adam(OptimizerOptions):
    """Adam (Kingma and Ba, 2015)."""

    scale_free: ClassVar[bool] = True
    learning_rate: float = _learning_rate(0.001)
    beta1: float = option(0.9, "decay of the mean", min=0, max=0.999999)
    beta2: float = option(0.999, "decay of the square", min=0, max=0.999999)
    epsilon: float = option(1e-8, "added to the root", min=0, max=1)
    weight_decay: float = option(0.0, **_WEIGHT_DECAY)
    at: str = _at("global", "worker")


@dataclass(frozen=True, slots=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019), DiLoCo's inner optimizer."""

    weight_decay: float = option(0.01, "share of the value that is subtracted, times the step size", min=0, max=1)


@dataclass(frozen=True, slots=True)
class LarsOptions(OptimizerOptions):
    """Layer-wise adaptive rate scaling (You, Gitman and Ginsburg, 2017). Norms are of whole tensors, not of slices."""

    whole_tensors: ClassVar[bool] = True
    by_norms: ClassVar[bool] = True
    scale_free: ClassVar[bool] = True
    learning_rate: float = _learning_rate(1.0)
    momentum: float = option(0.9, **_MOMENTUM)
    weight_decay: float = option(0.0005, **_WEIGHT_DECAY)
    trust: float = option(0.001, "trust coefficient: step size per norm of the value", above=0, max=1)
    adapt_from: int = option(0, "smaller tensors (biases) take a plain SGD step", min=0, max=10**9)
    at: str = _at("global", "worker")


@dataclass(frozen=True, slots=True)
class DcAsgd(OptimizerOptions):
    """Delay-compensated SGD (Zheng et al., 2017), with a backup of the values for each member that sends gradients.

    GeoMX's DCASGD keeps a single backup for all members instead (``previous: any``).
    """

    needs_backups: ClassVar[bool] = True
    momentum: float = option(0.0, **_MOMENTUM)
    weight_decay: float = option(0.0, **_WEIGHT_DECAY)
    compensation: float = option(0.04, "lambda; 0 is SGD", min=0, max=1000)
    previous: str = option(
        SENDER,
        "which earlier values the drift is measured from. sender: those that the gradient's sender last pulled; any: "
        "those before the latest update of any sender, as in GeoMX",
        choices=(SENDER, ANY),
    )
    adaptive: bool = option(False, "divide lambda by the root of the mean square gradient")
    mean_square_decay: float = option(0.95, "adaptive: memory of the mean square", min=0, max=0.999999)
    at: str = _at("global")

    @classmethod
    def rests(cls, options: Any) -> bool:
        return not (options.momentum or options.weight_decay)

    def problems(self) -> Iterator[tuple[str, str, str]]:
        yield from OptimizerOptions.problems(self)
        if not self.adaptive and not self._is_default("mean_square_decay"):
            yield "mean_square_decay", "has no effect", "write adaptive: true"


@dataclass(frozen=True, slots=True)
class Nesterov(OptimizerOptions):
    """DiLoCo's outer step (Douillard et al., 2023): SGD with Nesterov momentum on the mean of old minus new values."""

    learning_rate: float = _learning_rate(0.7)
    momentum: float = option(0.9, **_MOMENTUM)
    definition: str = option(
        TORCH,
        "what Nesterov momentum means. torch: m ← βm + g, and a step along g + βm; sutskever: the step size is in the "
        "momentum; averaged: the momentum is a mean of gradients, not their sum",
        choices=(TORCH, SUTSKEVER, AVERAGED),
    )
    at: str = _at("global")

    @classmethod
    def rests(cls, options: Any) -> bool:
        return not options.momentum


@dataclass(frozen=True, slots=True)
class DelayedNesterov(OptimizerOptions):
    """Nesterov momentum that changes only with every ``buffer``-th asynchronous contribution (Liu et al., 2024)."""

    learning_rate: float = _learning_rate(0.7)
    momentum: float = option(0.9, **_MOMENTUM)
    buffer: int = option(4, "contributions from one change of the momentum to the next (N)", min=1, max=10**6)
    spread: float = option(0.0, "share of the momentum's step that each contribution takes (c); at most 1/N", max=1)
    at: str = _at("global")

    @classmethod
    def rests(cls, options: Any) -> bool:
        return not options.momentum

    def problems(self) -> Iterator[tuple[str, str, str]]:
        yield from OptimizerOptions.problems(self)
        if self.spread * self.buffer > 1:
            problem = f"{self.buffer} of them are more than the whole step"
            yield "spread", problem, f"write {1 / self.buffer:.3g} or less"


@dataclass(frozen=True, slots=True)
class SignSgd(OptimizerOptions):
    """Every element moves by the step size against the sign of its gradient (Bernstein et al., 2018)."""

    scale_free: ClassVar[bool] = True
    learning_rate: float = _learning_rate(0.001)
    weight_decay: float = option(0.0, "share of the value that is subtracted, times the step size", min=0, max=1)
    at: str = _at("global", "worker")

    @classmethod
    def rests(cls, options: Any) -> bool:
        return not options.weight_decay


@dataclass(frozen=True, slots=True)
class MuonOptions(OptimizerOptions):
    """Momentum that is made orthogonal, for matrices (Jordan et al., 2024); AdamW for embeddings, heads and vectors."""

    whole_tensors: ClassVar[bool] = True
    by_shape: ClassVar[bool] = True
    scale_free: ClassVar[bool] = True
    learning_rate: float = _learning_rate(0.02)
    momentum: float = option(0.95, "of matrices, with Nesterov's look-ahead", min=0, max=0.9999)
    weight_decay: float = option(0.0, "share of the value that is subtracted, times the step size", min=0, max=1)
    adam_learning_rate: float = option(0.001, "largest step size, for all that is not a matrix", above=0, max=100)
    beta1: float = option(0.9, "AdamW's decay of the mean", min=0, max=0.999999)
    beta2: float = option(0.95, "AdamW's decay of the square", min=0, max=0.999999)
    at: str = _at("worker")


OPTIMIZERS: Axis[Any] = Axis(
    "optimizer",
    {
        "sgd": Sgd,
        "adam": Adam,
        "adamw": AdamW,
        "lars": LarsOptions,
        "dcasgd": DcAsgd,
        "nesterov": Nesterov,
        "delayed_nesterov": DelayedNesterov,
        "signsgd": SignSgd,
        "muon": MuonOptions,
    },
    base="testbed.training.optimizers.base:KeyStep",
)
