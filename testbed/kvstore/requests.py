"""What a script asks of the node that runs it, and what the scenario tells the script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class BeginRequest:
    """All keys are known: agree on first values. Answer: the master's, by key."""

    values: list[Tensor]
    optimizer: tuple[str, dict[str, Any]] | None
    compression: tuple[str, dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class PushRequest:
    """A contribution to the key's next round. Answer: that round's number."""

    key: int
    tensor: Tensor
    priority: int | None


@dataclass(frozen=True, slots=True)
class AwaitRequest:
    """The value after (key, round). Round -1: the value as it is now."""

    key: int
    round: int


@dataclass(frozen=True, slots=True)
class ExchangeRequest:
    """Push all keys, and wait for all new values. Answer: them, and the local steps of the next round."""

    tensors: list[Tensor]
    steps: int


@dataclass(frozen=True, slots=True)
class StepRequest:
    """A local training step has ended here: it takes the time that its device takes."""


@dataclass(frozen=True, slots=True)
class BarrierRequest:
    """Wait for all workers."""


@dataclass(frozen=True, slots=True)
class UntimedRequest:
    """What the script does until ``on`` is False again is no part of a training step."""

    on: bool


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """What the script has measured on its test set, or of its loss."""

    accuracy: float | None
    loss: float | None


@dataclass(frozen=True, slots=True)
class ParametersRequest:
    """Where the script's parameters can be read: what its worker ends with."""

    get: Callable[[], list[Tensor]]


@dataclass(frozen=True, slots=True)
class ScriptJob:
    """What the scenario says to a script.

    contribution  what ``GeoOptimizer`` pushes: ``gradient``, ``model`` or ``delta``
    at_server     whether the optimizer must stand on the servers, because nobody waits for the sum over all workers
    weight        what this worker counts for in the mean of models or deltas at its server
    local_steps   steps between two exchanges, to begin with
    differences   whether what comes down over the WAN follows a value that changes little (``pull: difference``)
    own_codec     why a script cannot choose the compression; empty: it can
    """

    rank: int = 0
    workers: int = 1
    rounds: int = 0
    contribution: str = "gradient"
    at_server: bool = False
    weight: float = 1.0
    local_steps: int = 1
    differences: bool = False
    own_codec: str = ""


class ScriptSession(Protocol):
    """The other end: the node that runs the script."""

    job: ScriptJob

    def ask(self, request: Any) -> Any:
        """Hand a request over, and wait for the answer."""
