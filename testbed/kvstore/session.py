"""A script's session: its node in a run, or a single worker in this process if there is no run.

A session answers these requests by name (``engine.script.exchange`` carries them out):

begin(values, optimizer, compression, together)
                                       The script has declared all keys; agree on first values. Answer: the master
                                       worker's values by key. The first ``together`` keys are in every exchange
push(key, tensor, priority, untaken)   Push a contribution to the key's next round. Answer: the round's number.
                                       ``untaken`` has earlier pushes, with their keys, whose values the script can no
                                       longer ask for
value(key, round)                      Answer: the key's value after the round, which must not be changed, and a copy
                                       for the script. Round -1 means the present value. Instead of a round, a posted
                                       push may be given
exchange(tensors, steps, without)      Push tensors, by key, and wait for all values. Answer: the values, and the local
                                       steps of the next round. With an optimizer on the servers, ``without`` has keys
                                       whose zeros mean that there is no gradient
step()                                 A local training step has ended; wait until its device's time for it has passed
barrier()                              Wait for all workers
finish()                               Wait for all workers. Answer: for the first worker, if no worker waits for all
                                       others, the newest values by key; else None
untimed(on)                            While ``on``, the script's work does not count as part of a training step
score(accuracy, loss)                  Record the scores that the script measured on its test set
not_finite(what, where, count, can_be_left_out)
                                       ``count`` numbers, of a gradient for example, are not finite. An answer means
                                       that the script must leave them out; if the scenario forbids that, the run ends
resume()                               Answer: the step with which the script begins, the local steps of its round, and
                                       the state given to ``between_steps``, by this script or by the one from which it
                                       takes over (None: no state). The answer is None if the script begins at step 0
first_round()                          Answer: the first round of a script that has joined a run in progress; else 0
between_steps(step, get)               ``step`` comes next. If a checkpoint is due, it is made now, with the state that
                                       ``get`` returns
holds(get, get_optimizer, get_rates)   ``get`` returns the script's parameters, which are its worker's final values;
                                       ``get_optimizer`` returns the state of its optimizer, as bytes, and
                                       ``get_rates`` the learning rates of its groups, as text
take_over()                            Answer: the results of another worker's ``get`` and ``get_optimizer`` after the
                                       round before ``first_round``; None if the parameters are on the servers
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

    If ``of_mean``, it steps along the mean gradient of the workers that push together, so that the step size does not
    depend on their number; otherwise along the sum of their gradients.
    """

    kind: str
    options: dict[str, Any]
    of_mean: bool = False


@dataclass(frozen=True, slots=True)
class ScriptJob:
    """The scenario's settings for a script.

    contribution  the tensors that ``GeoOptimizer`` pushes: ``gradient``, ``model`` or ``delta``
    at_server     whether the optimizer must run on the servers, because no worker waits for the sum over all workers
    weight        this worker's weight in the mean of models or deltas at its server
    local_steps   steps of the first round
    differences   whether pulls over the WAN are differences to the previous value (``pull: difference``)
    own_codec     the reason why a script cannot choose the compression; empty if it can
    memory        whether a codec of the scenario keeps residuals, so that it can only send changes, not values
    site_rank     this worker's number, from 0, in its data centre
    site_workers  number of workers in its data centre
    sync          the scenario's synchronisation, for messages
    checkpoints   whether the run makes checkpoints
    continues     whether the run continues when workers are lost, so that scripts may join a run in progress
    all_keys      whether every key travels in every round, because an overlay relays them together
    no_clip_norm  the reason why an optimizer on the servers cannot clip by the norm of all parameters; empty if it can
    on_nan        the reaction to a number that is not finite: ``abort``, ``skip`` or ``ignore``
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
    """A request for which the script does not wait.

    answer      the answer, set when the request has been carried out
    size_bytes  size of the request's tensors
    """

    __slots__ = ("answer", "size_bytes")

    def __init__(self, answer: Any = None, size_bytes: int = 0) -> None:
        self.answer = answer
        self.size_bytes = size_bytes


class ScriptSession(Protocol):
    """The node that runs the script, as the script sees it. ``store`` is the only store, made by ``connect``."""

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
        """Return the value after this push in place of the round's number; ``_value`` alone uses it."""
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
    """Set the session of this thread. The node that runs a script calls this in the script's thread."""
    _here.session = session


def here() -> ScriptSession:
    return getattr(_here, "session", None) or Alone()
