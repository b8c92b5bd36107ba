"""The receiver of a script's requests: its node, or, outside a run, a single worker in this process."""

from __future__ import annotations

import threading
from typing import Any

from torch import Tensor

from testbed.kvstore.requests import AwaitRequest, BeginRequest, ExchangeRequest, PushRequest, ScriptJob, ScriptSession


class Alone:
    """A session outside a run: one worker, in this process."""

    def __init__(self) -> None:
        self.job = ScriptJob()
        self._values: list[Tensor] = []
        self._optimizers: list[Any] = []
        self._rounds: dict[int, int] = {}

    def ask(self, request: Any) -> Any:
        if isinstance(request, BeginRequest):
            return self._begin(request)
        if isinstance(request, PushRequest):
            return self._push(request.key, request.tensor)
        if isinstance(request, AwaitRequest):
            return self._values[request.key].clone()
        if isinstance(request, ExchangeRequest):
            for key, tensor in enumerate(request.tensors):
                self._push(key, tensor)
            return [value.clone() for value in self._values], request.steps
        return None

    def _begin(self, request: BeginRequest) -> list[Tensor]:
        self._values = [value.clone() for value in request.values]
        if request.optimizer is not None:
            from testbed.training.optimizers import KeyOptimizer

            self._optimizers = [KeyOptimizer(*request.optimizer, value) for value in self._values]
        return [value.clone() for value in self._values]

    def _push(self, key: int, tensor: Tensor) -> int:
        if self._optimizers:
            self._optimizers[key].step(tensor)
            tensor = self._optimizers[key].value
        self._values[key] = tensor.clone()
        self._rounds[key] = self._rounds.get(key, -1) + 1
        return self._rounds[key]


_here = threading.local()


def enter(session: ScriptSession) -> None:
    """Set the session of this thread; called by the node that runs a script in it."""
    _here.session = session


def here() -> ScriptSession:
    """Return the session of this thread."""
    return getattr(_here, "session", None) or Alone()
