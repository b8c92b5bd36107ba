"""The key-value store for people who bring their own training code.

An ordinary PyTorch loop becomes geo-distributed by two lines: connect, and wrap the optimizer.

    store = connect()                                          # who am I: store.rank of store.num_workers
    optimizer = GeoOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), store)

A scenario names the script (``workload: {script: my_train.py}``) and runs it on every back end, one copy per worker.
Started by plain ``python my_train.py`` it is one worker of one. Everything here is called from the script's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from testbed.errors import ScenarioError

# ---- what a script asks of its node ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """All keys are known: agree on first values. Answer: the master's, by key."""

    values: list[Tensor]
    optimizer: tuple[str, dict[str, Any]] | None


@dataclass(frozen=True, slots=True)
class Push:
    """A contribution to the key's next round. Answer: that round's number."""

    key: int
    tensor: Tensor
    priority: int | None


@dataclass(frozen=True, slots=True)
class Await:
    """The value after (key, round). Round -1: the value as it is now."""

    key: int
    round: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """Push all keys, and wait for all new values. Answer: them, and the local steps of the next round."""

    tensors: list[Tensor]
    steps: int


@dataclass(frozen=True, slots=True)
class Step:
    """A local training step has ended here: it takes the time that its device takes."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Wait for all workers."""


@dataclass(frozen=True, slots=True)
class Untimed:
    """What the script does until ``on`` is False again is no part of a training step."""

    on: bool


@dataclass(frozen=True, slots=True)
class Score:
    """What the script has measured on its test set, or of its loss."""

    accuracy: float | None
    loss: float | None


@dataclass(frozen=True, slots=True)
class Holds:
    """Where the script's parameters can be read: what its worker ends with."""

    get: Callable[[], list[Tensor]]


@dataclass(frozen=True, slots=True)
class Job:
    """What the scenario says to a script.

    contribution  what ``GeoOptimizer`` pushes: ``gradient``, ``model`` or ``delta``
    at_server     whether the optimizer must stand on the servers, because nobody waits for the sum over all workers
    weight        what this worker counts for in the mean of models or deltas at its server
    local_steps   steps between two exchanges, to begin with
    """

    rank: int = 0
    workers: int = 1
    iterations: int = 0
    contribution: str = "gradient"
    at_server: bool = False
    weight: float = 1.0
    local_steps: int = 1


class Session(Protocol):
    """The other end: the node that runs the script."""

    job: Job

    def ask(self, request: Any) -> Any:
        """Hand a request over, and wait for the answer."""


class Alone:
    """A session without a testbed: one worker, in this process."""

    def __init__(self) -> None:
        self.job = Job()
        self._values: list[Tensor] = []
        self._optimizers: list[Any] = []
        self._rounds: dict[int, int] = {}

    def ask(self, request: Any) -> Any:
        if isinstance(request, Begin):
            return self._begin(request)
        if isinstance(request, Push):
            return self._push(request.key, request.tensor)
        if isinstance(request, Await):
            return self._values[request.key].clone()
        if isinstance(request, Exchange):
            for key, tensor in enumerate(request.tensors):
                self._push(key, tensor)
            return [value.clone() for value in self._values], request.steps
        return None

    def _begin(self, request: Begin) -> list[Tensor]:
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


def enter(session: Session) -> None:
    """For the node that runs a script in this thread."""
    _here.session = session


def connect() -> KVStore:
    """This script's store: of its worker in a run, or of a single worker alone."""
    return KVStore(getattr(_here, "session", None) or Alone())


# ---- the store ------------------------------------------------------------------------------------------------------


class Handle:
    """A push that is on its way."""

    def __init__(self, session: Session, key: int, round_: int, shape: torch.Size) -> None:
        self._session, self._key, self._round, self._shape = session, key, round_, shape
        self._value: Tensor | None = None

    def wait(self) -> Tensor:
        """The key's value after this push's round. May be asked again."""
        if self._value is None:
            self._value = self._session.ask(Await(self._key, self._round)).view(self._shape)
        return self._value


class KVStore:
    """Values by key, at the servers. Every worker makes the same calls of ``init``; tensors are float32, any shape.

    Without ``set_optimizer``, the value after a round is the sum of what was pushed in it.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._keys: dict[Hashable, int] = {}
        self._first: list[Tensor] = []
        self._shapes: list[torch.Size] = []
        self._last: dict[int, Handle] = {}
        self._optimizer: tuple[str, dict[str, Any]] | None = None
        self._begun: list[Tensor] | None = None

    @property
    def rank(self) -> int:
        """This worker's number, from 0."""
        return self._session.job.rank

    @property
    def num_workers(self) -> int:
        """Workers of all data centres."""
        return self._session.job.workers

    @property
    def job(self) -> Job:
        """What the scenario says."""
        return self._session.job

    def init(self, key: Hashable, tensor: Tensor) -> None:
        """Declare a key. Worker 0's value becomes everybody's. All keys come before the first push or pull."""
        if self._begun is not None:
            raise ScenarioError(f"init({key!r}) comes after the first push or pull; declare all keys before")
        if key in self._keys:
            raise ScenarioError(f"init({key!r}) was called twice")
        self._keys[key] = len(self._first)
        self._first.append(tensor.detach().reshape(-1).to("cpu", torch.float32, copy=True))
        self._shapes.append(tensor.shape)

    def set_optimizer(self, kind: str, **options: Any) -> None:
        """Let the servers apply what is pushed as gradients, with an optimizer of the scenario's table."""
        if self._begun is not None:
            raise ScenarioError("set_optimizer comes after the first push or pull; call it before")
        from testbed.training.options import OPTIMIZERS

        if kind not in OPTIMIZERS:
            raise ScenarioError(f"set_optimizer: {kind!r} is not one of {', '.join(OPTIMIZERS)}")
        try:
            OPTIMIZERS[kind](**options)
        except TypeError as error:
            raise ScenarioError(f"set_optimizer({kind!r}): {error}") from None
        self._optimizer = (kind, options)

    def push(self, key: Hashable, tensor: Tensor, priority: int | None = None) -> Handle:
        """Send a contribution, and go on. Larger priorities overtake smaller ones where the order axis allows it."""
        number = self._number(key)
        flat = tensor.detach().reshape(-1).to("cpu", torch.float32, copy=True)
        if flat.numel() != self._first[number].numel():
            raise ScenarioError(f"push({key!r}): {flat.numel()} elements, declared with {self._first[number].numel()}")
        round_ = self._session.ask(Push(number, flat, priority))
        self._last[number] = handle = Handle(self._session, number, round_, self._shapes[number])
        return handle

    def pull(self, key: Hashable) -> Tensor:
        """The value after this worker's last push of the key; before any, the first value."""
        number = self._number(key)
        if number in self._last:
            return self._last[number].wait().clone()
        value: Tensor = self._session.ask(Await(number, -1))
        return value.view(self._shapes[number])

    def pushpull(self, key: Hashable, tensor: Tensor, priority: int | None = None) -> Tensor:
        """Push, and wait for the value after it."""
        return self.push(key, tensor, priority).wait()

    def barrier(self) -> None:
        """Wait until all workers are here."""
        self._begin()
        self._session.ask(Barrier())

    def report(self, accuracy: float | None = None, loss: float | None = None) -> None:
        """Tell the run's record; worker 0 speaks for all."""
        self._begin()
        self._session.ask(Score(accuracy, loss))

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """For evaluation: what happens inside is no part of a training step."""
        self._session.ask(Untimed(True))
        try:
            yield
        finally:
            self._session.ask(Untimed(False))

    def exchange(self, tensors: Sequence[Tensor], steps: int) -> tuple[list[Tensor], int]:
        """For ``GeoOptimizer``: push every key, in order, and wait for all values."""
        self._begin()
        answer: tuple[list[Tensor], int] = self._session.ask(Exchange(list(tensors), steps))
        return answer

    def step(self) -> None:
        """A local step without an exchange has ended."""
        self._session.ask(Step())

    def holds(self, get: Callable[[], list[Tensor]]) -> None:
        """For ``GeoOptimizer``: the parameters are what ``get`` returns, not what was last pulled."""
        self._session.ask(Holds(get))

    def first_values(self) -> list[Tensor]:
        """What all begin with, flat, in the order of ``init``."""
        return self._begin()

    def _begin(self) -> list[Tensor]:
        if self._begun is None:
            self._begun = self._session.ask(Begin(self._first, self._optimizer))
        return self._begun

    def _number(self, key: Hashable) -> int:
        if key not in self._keys:
            raise ScenarioError(f"key {key!r} is not known; call init({key!r}, tensor) first")
        self._begin()
        return self._keys[key]


# ---- the optimizer --------------------------------------------------------------------------------------------------


class GeoOptimizer(torch.optim.Optimizer):
    """Any torch optimizer, over all workers of all data centres. How is the scenario's business (``sync``).

    fsa, bsp               ``step`` takes the mean of all workers' gradients, then the optimizer's own step, everywhere
    mixedsync, tap, ssp    nobody waits for all, so the optimizer moves to the servers (SGD, Adam and AdamW can)
    hfa, esync, diloco     ``step`` is local; after so many steps, models are averaged

    Learning-rate schedulers work as ever, except where the optimizer has moved to the servers.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, store: KVStore | None = None) -> None:
        self.optimizer, self.store = optimizer, store or connect()
        self._parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
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
        """One training step; with the others, when it is time."""
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
    options: dict[str, Any] = {"learning_rate": group["lr"], "weight_decay": group["weight_decay"]}
    if kind == "sgd":
        return kind, {**options, "momentum": group["momentum"], "nesterov": group["nesterov"]}
    beta1, beta2 = group["betas"]
    return kind, {**options, "beta1": beta1, "beta2": beta2, "epsilon": group["eps"]}
