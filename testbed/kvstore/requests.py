"""Requests of a script to the node that runs it, and the scenario's settings for the script."""

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
    """While ``on``, the script's work is not part of a training step."""

    on: bool


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """The script's measured accuracy on its test set, and its loss."""

    accuracy: float | None
    loss: float | None


@dataclass(frozen=True, slots=True)
class ParametersRequest:
    """A function that returns the script's current parameters, which are its worker's final values."""

    get: Callable[[], list[Tensor]]


@dataclass(frozen=True, slots=True)
class ScriptJob:
    """The scenario's settings for a script.

    contribution  what ``GeoOptimizer`` pushes: ``gradient``, ``model`` or ``delta``
    at_server     whether the optimizer must run on the servers, since no worker waits for the sum over all workers
    weight        this worker's weight in the mean of models or deltas at its server
    local_steps   steps of the first round
    differences   whether pulls over the WAN are differences to the previous value (``pull: difference``)
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
    """The node that runs the script, as the script sees it."""

    job: ScriptJob

    def ask(self, request: Any) -> Any:
        """Send a request, and wait for the answer."""
