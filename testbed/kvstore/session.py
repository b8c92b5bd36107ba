"""A script's session: its node in a run, or, outside a run, a single worker in this process.

The requests that a session answers, by name (``engine.script.exchange`` carries them out):

begin(values, optimizer, compression, together)
                                       all keys are known: agree on first values. Answer: the master's, by key.
                                       ``together``: so many keys, from the first on, are in every exchange
push(key, tensor, priority, untaken)   a contribution to the key's next round. Answer: that round's number.
                                       ``untaken``: earlier pushes, with their keys, whose values the script cannot
                                       take any more
value(key, round)                      the value after (key, round), which is not to be changed, and a copy for the
                                       script. Round -1: the value as it is now. A push that was posted stands for its
                                       round
exchange(tensors, steps, without)      push tensors, by key, and wait for all. Answer: new values, local steps of the
                                       next round.
                                       ``without``: keys whose zeros stand for no gradient, where servers optimise
step()                                 a local training step has ended here: it takes the time that its device takes
barrier()                              wait for all workers
finish()                               wait for all workers. Answer: where no worker waits for all others, and to the
                                       first one, the newest values, by key; else None
untimed(on)                            while ``on``, the script's work is not part of a training step
score(accuracy, loss)                  as measured by the script on its test set
not_finite(what, where, count, can_be_left_out)  ``count`` numbers of a gradient, say, are not finite. Answered where
                                       the scenario lets the script leave them out, which then does; else the run ends
resume()                               the step with which the script begins, the local steps of its round, and what
                                       ``between_steps`` was given, here or by a script that this one joins (None:
                                       nothing); None where the run begins, and the script with it
first_round()                          the round that a script that has joined a run in progress begins with; else 0
between_steps(step, get)               ``step`` is the next one. If a checkpoint is due, it is made here, with what
                                       ``get`` returns
holds(get, get_optimizer, get_rates)   ``get`` returns the script's parameters, which are its worker's final values;
                                       ``get_optimizer`` the state of its optimizer, as bytes; ``get_rates`` the
                                       learning rates of its groups, as text
take_over()                            what another worker's ``get`` and ``get_optimizer`` return after the round
                                       before ``first_round``; None where parameters are at the servers
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from testbed.finite import end_or_leave_out
from testbed.training.optimizers import KeyOptimizer

NamedOptions = tuple[str, dict[str, Any]]  # the kind of an optimizer or a codec, and its options


@dataclass(frozen=True, slots=True)
class ScriptOptimizer:
    """An optimizer that a script chooses for the servers.

    ``of_mean``: it steps along the mean gradient of the workers that push together, so that a learning rate means the
    same whoever they are; otherwise along their sum.
    """

    kind: str
    options: dict[str, Any]
    of_mean: bool = False


@dataclass(frozen=True, slots=True)
class ScriptJob:
    """The scenario's settings for a script.

    contribution  what ``GeoOptimizer`` pushes: ``gradient``, ``model`` or ``delta``
    at_server     whether the optimizer must run on the servers, since no worker waits for the sum over all workers
    weight        this worker's weight in the mean of models or deltas at its server
    local_steps   steps of the first round
    differences   whether pulls over the WAN are differences to the previous value (``pull: difference``)
    own_codec     why a script cannot choose the compression; empty: it can
    memory        whether a codec of the scenario keeps residuals, so that what it sends are changes, not values
    site_rank     this worker's number, from 0, in its data centre
    site_workers  the workers of its data centre
    sync          the scenario's synchronisation, for messages
    checkpoints   whether the run makes any
    continues     whether workers may be lost, and scripts join a run in progress
    all_keys      whether every key travels in every round, as an overlay relays them together
    no_clip_norm  why an optimizer on the servers cannot clip by the norm of all parameters; empty: it can
    on_nan        what happens where a number is not finite: ``abort``, ``skip`` or ``ignore``
    """

    rank: int = 0
    workers: int = 1
    site_rank: int = 0
    site_workers: int = 1
    rounds: int = 0
    contribution: str = "gradient"
    at_server: bool = False
    weight: float = 1.0
    local_steps: int = 1
    differences: bool = False
    own_codec: str = ""
    memory: bool = False
    sync: str = ""
    checkpoints: bool = False
    continues: bool = False
    all_keys: bool = False
    on_nan: str = "abort"
    no_clip_norm: str = ""


class Posted:
    """A request that the script does not wait for.

    ``answer``: set when it is carried out; ``size_bytes``: of its tensors.
    """

    __slots__ = ("answer", "size_bytes")

    def __init__(self, answer: Any = None, size_bytes: int = 0) -> None:
        self.answer = answer
        self.size_bytes = size_bytes


class ScriptSession(Protocol):
    """The node that runs the script, as the script sees it. ``store``: that of ``connect``, of which there is one."""

    job: ScriptJob
    store: Any

    def ask(self, request: str, *arguments: Any) -> Any:
        """Send a request of the module's table, and wait for the answer."""

    def post(self, request: str, *arguments: Any) -> Posted:
        """Send a request without waiting for the answer. Later requests are carried out after it."""


class Alone:
    """A session outside a run: one worker, in this process."""

    store: Any = None

    def __init__(self) -> None:
        self.job = ScriptJob()
        self._values: list[Tensor] = []
        self._optimizers: list[KeyOptimizer] = []
        self._steps = 0

    def ask(self, request: str, *arguments: Any) -> Any:
        answers: dict[str, Callable[..., Any]] = {
            "begin": self._begin,
            "push": self._push,
            "value": self._value,
            "exchange": self._exchange,
            "step": self._step,
            "not_finite": self._not_finite,
        }
        return answers[request](*arguments) if request in answers else None

    def post(self, request: str, *arguments: Any) -> Posted:
        return Posted(self.ask(request, *arguments))

    def _begin(self, values: list[Tensor], optimizer: ScriptOptimizer | None, *others: object) -> list[Tensor]:
        self._values = [value.clone() for value in values]
        if optimizer is not None:
            self._optimizers = [KeyOptimizer(optimizer.kind, optimizer.options, value) for value in self._values]
        return [value.clone() for value in self._values]

    def _push(self, key: int, tensor: Tensor, priority: object = None, untaken: object = ()) -> Tensor:
        """Return the value after this push, where a node returns the round: only ``_value`` looks at it."""
        if self._optimizers:
            self._optimizers[key].step(tensor)
            tensor = self._optimizers[key].value
        self._values[key] = tensor.clone()
        return self._values[key]

    def _value(self, key: int, after: int | Posted) -> tuple[Sequence[Tensor], Tensor]:
        value: Tensor = after.answer if isinstance(after, Posted) else self._values[key]
        return [value], value.clone()

    def _exchange(
        self, tensors: Mapping[int, Tensor], steps: int, without: object = ()
    ) -> tuple[dict[int, Tensor], int]:
        self._step()
        return {key: self._push(key, tensor).clone() for key, tensor in tensors.items()}, steps

    def _step(self) -> None:
        self._steps += 1

    def _not_finite(self, what: str, where: str, count: int, can_be_left_out: bool) -> None:
        found = f"non-finite {what}: step {self._steps}, {where}, {count} elements"
        end_or_leave_out(found, self.job.on_nan, _warn, can_be_left_out=can_be_left_out)


def _warn(kind: str, message: str) -> None:
    warnings.warn(message, stacklevel=5)


_here = threading.local()


def enter(session: ScriptSession) -> None:
    """Set the session of this thread; called by the node that runs a script in it."""
    _here.session = session


def here() -> ScriptSession:
    return getattr(_here, "session", None) or Alone()
