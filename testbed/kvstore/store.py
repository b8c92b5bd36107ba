"""The key-value store of a script: values by key, at the servers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from testbed import buffers
from testbed.axes import Axis, refuse_values
from testbed.codec.options import CODECS
from testbed.errors import ScenarioError
from testbed.finite import first_not_finite
from testbed.kvstore.checkpoint import generator_states, load_objects, saved_objects
from testbed.kvstore.session import NamedOptions, Posted, ScriptJob, ScriptOptimizer, ScriptSession, here
from testbed.kvstore.travelling import dense, refuse_unless_float32_holds
from testbed.training.options import OPTIMIZERS

RANK_OF_ALL = "rank of all"
ALL_WORKERS = "all workers"
RANK_IN_SITE = "rank in site"
SITE_WORKERS = "site workers"
_ROUND = "write tensor.float() if they may be rounded; torch.view_as_real makes two numbers of a complex one"


NO_CLIP_NORM = (
    "clip_norm needs the gradients of all keys together, and pushes come key by key; scale what is pushed, or use "
    "GeoOptimizer(optimizer, store, clip_norm=…)"
)


def pull_of(kind: str, options: Mapping[str, Any]) -> str:
    """Return a codec's ``pull`` option; empty if it has none."""
    return CODECS[kind].pull_on(CODECS.options(kind, options), tier=2)


def check_options(call: str, axis: Axis[Any], kind: str, options: Mapping[str, Any]) -> None:
    """Raise ``ScenarioError`` unless the axis has this kind, and the options are valid for it."""
    if kind not in axis:
        raise ScenarioError(f"{call}: {kind!r} is not one of {', '.join(axis)}")
    try:
        chosen = axis.options(kind, options)
        refuse_values(chosen)
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"{call}({kind!r}): {error}") from None
    for name, problem, cure in chosen.problems() if hasattr(chosen, "problems") else ():
        raise ScenarioError(f"{call}({kind!r}): {name}: {problem}; {cure}")


def what_to_push(job: ScriptJob) -> str:
    """Return advice on what a script must push itself if models or their changes travel."""
    what = "weight * model" if job.contribution == "model" else "weight * (before - after)"
    text = (
        f"by 'sync: {job.sync}' servers add what workers push: push {what}, as a new tensor; the store's weight is "
        f"this worker's share in the mean, {job.weight:.4g}"
    )
    if job.contribution == "delta":
        text += "; before and after are the model as it was pulled, and after the local steps"
    return f"{text} (GeoOptimizer does this by itself)"


def connect() -> KVStore:
    """Return this script's store: that of its worker in a run, or of a single worker if there is no run."""
    session = here()
    if session.store is None:
        session.store = KVStore(session)
    store: KVStore = session.store
    return store


class Handle:
    """A push in progress."""

    def __init__(
        self, session: ScriptSession, key: int, push: Posted, shape: torch.Size, untaken: deque[tuple[int, Posted]]
    ) -> None:
        """``untaken`` gets key and push of a handle that is deleted before its value was taken."""
        self._session = session
        self._key = key
        self._push = push
        self._shape = shape
        self._untaken = untaken
        self._value: Sequence[Tensor] | None = None  # in the pieces in which it arrived

    def __del__(self) -> None:
        if self._value is None:
            self._untaken.append((self._key, self._push))

    def wait(self) -> Tensor:
        """Wait for the key's value after this push's round, and return it. May be called again.

        Every call returns a new copy, which the caller may change.
        """
        copy: Tensor
        if self._value is None:
            self._value, copy = self._session.ask("value", self._key, self._push)
        else:
            copy = buffers.joined(self._value)
        return copy.view(self._shape)


class KVStore:
    """Values by key, on the servers. Every worker makes the same calls of ``init``. Tensors are float32, of any shape.

    Without ``set_optimizer``, the value after a round is the sum of the tensors pushed in it.
    """

    def __init__(self, session: ScriptSession) -> None:
        self._session = session
        self._keys: dict[Hashable, int] = {}
        self._first: list[Tensor] = []
        self._dimensions: list[tuple[int, ...]] = []  # of the tensors, by the numbers of their keys
        self._shapes: list[torch.Size] = []
        self._last: dict[int, Handle] = {}
        self._untaken: deque[tuple[int, Posted]] = deque()  # keys and pushes whose values can no longer be taken
        self._pushes: dict[int, int] = {}  # number of pushes by key
        self._steps = 0  # number of training steps that pushes have ended
        self._optimizer: ScriptOptimizer | None = None
        self._compression: NamedOptions | None = None
        self.together: int | None = None  # set by ``GeoOptimizer``: the number of first keys that are always pushed
        self._begun: list[Tensor] | None = None
        self._begun_by = ""  # the first call that needed all keys
        self.places: set[str] = set()  # the ranks and numbers of workers that the script has asked for
        self.kept: dict[str, Any] = {}  # objects for checkpoints, in addition to those given to ``steps``
        self.on_resume: list[Callable[[int], None]] = []  # called with the local steps of a resumed run's next round

    @property
    def rank(self) -> int:
        """This worker's number, from 0, among the workers of all data centres."""
        self.places.add(RANK_OF_ALL)
        return self._session.job.rank

    @property
    def num_workers(self) -> int:
        """The number of workers in all data centres."""
        self.places.add(ALL_WORKERS)
        return self._session.job.workers

    def mixed_up_ranks(self) -> str:
        """Return a warning if the script asks for ranks and numbers of workers with which it would divide data wrongly.

        GeoMX's ``rank`` counts the workers of one data centre, this store's ``rank`` counts all workers.
        """
        job = self.job
        asked = self.places
        if job.site_workers == job.workers:
            return ""
        divide = "to divide data among all workers, use kv.rank_of_all and kv.num_all_workers"
        if RANK_IN_SITE in asked and RANK_OF_ALL not in asked:
            why = "what it divides or seeds is the same in every data centre"
            if ALL_WORKERS in asked and SITE_WORKERS not in asked:
                why = "parts of the data that are counted over all workers are used twice, and others never"
            return (
                f"the script asks for kv.rank, which counts the {job.site_workers} of its data centre, and not for "
                f"kv.rank_of_all, which counts all {job.workers}: {why}; {divide}"
            )
        if RANK_OF_ALL in asked and SITE_WORKERS in asked and ALL_WORKERS not in asked:
            return (
                f"the script asks for its number among all {job.workers} workers, and for kv.num_workers, the "
                f"{job.site_workers} of its data centre: parts of data that are divided by these overlap; {divide}"
            )
        return ""

    @property
    def job(self) -> ScriptJob:
        """The scenario's settings for the script."""
        return self._session.job

    @property
    def first_round(self) -> int:
        """The round with which this worker begins: 0, or a later one if its script has joined a run in progress.

        Pulled values are those before this round, and ``steps`` begins with the round's first step.
        """
        self._begin("first_round")
        round_: int = self._session.ask("first_round") or 0
        return round_

    @property
    def weight(self) -> float:
        """The factor by which this worker multiplies a model, or its change, before a push, as servers only add.

        It is 1 if gradients travel, or if a server applies each push by itself.
        """
        return self.job.weight

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The declared keys, in the order of ``init``."""
        return tuple(self._keys)

    def init(self, key: Hashable, tensor: Tensor) -> None:
        """Declare a key, before the first push or pull. All workers start with worker 0's value."""
        if self._begun is not None:
            raise ScenarioError(f"init({key!r}) comes after {self._begun_by}; declare all keys before")
        if key in self._keys:
            raise ScenarioError(f"init({key!r}) was called twice")
        refuse_unless_float32_holds(f"init({key!r}): the tensor", tensor, _ROUND)
        if not tensor.numel():
            raise ScenarioError(f"init({key!r}): a tensor without elements; leave it out")
        self._keys[key] = len(self._first)
        self._dimensions.append(tuple(tensor.shape))
        self._first.append(tensor.detach().reshape(-1).to("cpu", torch.float32, copy=True))
        self._shapes.append(tensor.shape)

    def set_optimizer(self, kind: str, *, of_mean: bool = True, **options: Any) -> None:
        """Let the servers use pushed tensors as gradients, with an optimizer of the axis ``optimizer``.

        It steps along the mean gradient of the workers that push together or, with ``of_mean=False``, along their sum.
        """
        if options.get("clip_norm"):
            raise ScenarioError(f"set_optimizer({kind!r}): {NO_CLIP_NORM}")
        self.optimize_together(kind, options, of_mean)

    def optimize_together(self, kind: str, options: dict[str, Any], of_mean: bool = True) -> None:
        """Do as ``set_optimizer`` for pushes of all keys together, which allow ``clip_norm``; for ``GeoOptimizer``."""
        if self._begun is not None:
            raise ScenarioError(f"set_optimizer comes after {self._begun_by}; call it before")
        check_options("set_optimizer", OPTIMIZERS, kind, options)
        self._optimizer = ScriptOptimizer(kind, options, of_mean)

    def set_compression(self, kind: str, **options: Any) -> None:
        """Compress messages over the WAN with a codec of the axis ``codec``. Every worker makes the same call.

        The codec decides whether values that servers send are compressed too. Raise ``ScenarioError`` if the scenario
        sets ``codec`` itself, or if codec and scenario are incompatible.
        """
        if self._begun is not None:
            raise ScenarioError(f"set_compression comes after {self._begun_by}; call it before")
        if self.job.own_codec:
            raise ScenarioError(f"set_compression({kind!r}): {self.job.own_codec}")
        check_options("set_compression", CODECS, kind, options)
        self._compression = (kind, options)

    @property
    def compresses_changes(self) -> bool:
        """Whether the codec that this script has chosen keeps residuals."""
        return self._compression is not None and CODECS[self._compression[0]].has_memory

    def push(self, key: Hashable, tensor: Tensor, priority: int | None = None) -> Handle:
        """Send a contribution without waiting. Larger priorities overtake smaller ones; default: ``order`` decides."""
        number = self._number(key)
        if self.together is not None:
            raise ScenarioError(f"push({key!r}): keys of a GeoOptimizer are pushed by its step")
        refuse_unless_float32_holds(f"push({key!r}): the tensor", tensor, _ROUND)
        flat = buffers.empty((tensor.numel(),), torch.float32).copy_(dense(tensor).detach().reshape(-1))
        if flat.numel() != self._first[number].numel():
            raise ScenarioError(f"push({key!r}): {flat.numel()} elements, declared with {self._first[number].numel()}")
        if not self.finite([flat], "push", where=f"key {key!r}", can_be_left_out=self.job.contribution != "model"):
            flat.zero_()
        count = self._pushes[number] = self._pushes.get(number, 0) + 1
        if count == 1 and flat.any() and torch.equal(flat, self.first_values()[number]):
            self.refuse_a_whole_model(key)
        untaken = [self._untaken.popleft() for _ in range(len(self._untaken))]
        if count > self._steps:  # the first push of a round ends its steps: wait until their modelled time has passed
            self._steps = count
            pushed = Posted(self._session.ask("push", number, flat, priority, untaken))
        else:
            pushed = self._session.post("push", number, flat, priority, untaken)
        self._last[number] = handle = Handle(self._session, number, pushed, self._shapes[number], self._untaken)
        return handle

    def refuse_a_whole_model(self, key: Hashable) -> None:
        """Raise ``ScenarioError`` if the scenario expects weighted models or changes: an unchanged model was pushed."""
        if self.job.contribution == "delta" or (self.job.contribution == "model" and self.job.weight != 1):
            raise ScenarioError(f"push({key!r}): this is the model as it is; {what_to_push(self.job)}")

    def pull(self, key: Hashable) -> Tensor:
        """Return the value after this worker's last push of the key; before any push, the present value."""
        number = self._number(key)
        if number in self._last:
            return self._last[number].wait()
        copy: Tensor
        _, copy = self._session.ask("value", number, -1)
        return copy.view(self._shapes[number])

    def pushpull(self, key: Hashable, tensor: Tensor, priority: int | None = None) -> Tensor:
        """Push, and return the value after it."""
        return self.push(key, tensor, priority).wait()

    def barrier(self) -> None:
        """Wait until all workers call ``barrier``."""
        self._begin("barrier")
        self._session.ask("barrier")

    def finish(self) -> list[Tensor] | None:
        """End the training: wait until all workers call ``finish``, after their last step.

        If no worker waits for all others (``mixedsync``, ``tap``, ``ssp``), others may have pushed since worker 0 last
        pulled. So worker 0 gets the final values here, flat, in the order of ``init``; ``pull`` then returns them, too.
        Scores that it reports afterwards are those of the final model. Other calls return ``None``.
        """
        self._begin("finish")
        values: list[Tensor] | None = self._session.ask("finish")
        if values is not None:
            self._last.clear()
        return values

    def report(self, accuracy: float | None = None, loss: float | None = None) -> None:
        """Record accuracy and loss of the run. Only those of worker 0 are recorded.

        ``recovery.on_nan`` decides whether a number that is not finite ends the run or is left out.
        """
        self._begin("report")
        told = {"accuracy": accuracy, "loss": loss}
        for name, number in told.items():
            if number is not None and not self.finite([torch.tensor(float(number))], "report", where=name):
                told[name] = None
        self._session.ask("score", told["accuracy"], told["loss"])

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """Exclude the block, such as an evaluation, from the training step's time."""
        self._session.ask("untimed", True)
        try:
            yield
        finally:
            self._session.ask("untimed", False)

    def exchange(
        self, tensors: Mapping[int, Tensor], steps: int, without_gradient: Sequence[int] = ()
    ) -> tuple[dict[int, Tensor], int]:
        """Push these tensors, by the numbers of their keys, and wait for the values; for ``GeoOptimizer``.

        ``without_gradient`` has keys whose zeros mean that there is no gradient. An optimizer on the servers does not
        change a key if no worker in the sum has a gradient for it.
        """
        self._begin()
        answer: tuple[dict[int, Tensor], int] = self._session.ask("exchange", tensors, steps, without_gradient)
        return answer

    def finite(self, tensors: Sequence[Tensor], what: str, *, where: str = "", can_be_left_out: bool = True) -> bool:
        """Return whether all numbers are finite; with ``recovery.on_nan: ignore``, always True. For ``GeoOptimizer``.

        If they are not, either the run ends, or the caller must contribute zeros in place of ``what``. ``where`` is for
        the message, by default the number of the first tensor with such numbers.
        """
        if self.job.on_nan == "ignore" or (found := first_not_finite(tensors)) is None:
            return True
        number, count = found
        self._session.ask("not_finite", what, where or f"tensor {number}", count, can_be_left_out)
        return False

    def step(self) -> None:
        """Report the end of a local step without an exchange.

        A script that pushes by itself need not report steps: the first push of a round then ends all local steps of the
        round (``k1`` or ``h`` of the scenario). If it reports steps, a push ends no further ones.
        """
        self._session.ask("step")

    def holds(
        self, get: Callable[[], list[Tensor]], get_optimizer: Callable[[], Tensor], get_rates: Callable[[], str] = str
    ) -> None:
        """Set the functions that return the parameters and the optimizer's state and learning rates.

        The parameters replace the last pulled values as this worker's final values. For ``GeoOptimizer``.
        """
        self._session.ask("holds", get, get_optimizer, get_rates)

    def take_over(self) -> tuple[list[Tensor], Tensor] | None:
        """Return another worker's parameters and optimizer state, if this worker needs them to join a run.

        For ``GeoOptimizer``; see ``holds``.
        """
        answer: tuple[list[Tensor], Tensor] | None = self._session.ask("take_over")
        return answer

    def steps(self, count: int, **kept: Any) -> Iterator[int]:
        """Yield the numbers of the training steps below ``count``, from 0, or from the step of a checkpoint.

        A script that joins a run in progress begins with the first step of ``first_round``.

        ``kept`` has objects with ``state_dict`` and ``load_state_dict`` (model, optimizer, scheduler). Checkpoints hold
        their states and those of the random generators of torch, numpy and ``random``; a resumed run begins with them.
        A script that joins takes the objects' states from another worker if servers only have sums of gradients.
        """
        self._begin("steps")
        kept = {**self.kept, **kept}
        first = 0
        joined = self.first_round > 0
        if (resumed := self._session.ask("resume")) is not None:
            first, local_steps, content = resumed
            if content is not None:
                load_objects(content, kept, generators=not joined)
            for notify in self.on_resume:
                notify(local_steps)
        if joined:
            self._keep(first, kept)
        for step in range(first, count):
            yield step
            if self.job.checkpoints or self.job.continues:
                self._keep(step + 1, kept)

    def _keep(self, step: int, kept: Mapping[str, Any]) -> None:
        generators = generator_states()  # read in the script's thread, to which the generators belong
        self._session.ask("between_steps", step, lambda: saved_objects(kept, generators))

    def first_values(self) -> list[Tensor]:
        """Return the first values, flat, in the order of ``init``."""
        return self._begin()

    def _begin(self, call: str = "the first push or pull") -> list[Tensor]:
        if self._begun is None:
            self._begun_by = call
            self._refuse_differences_of_sums()
            self._begun = self._session.ask(
                "begin", self._first, self._optimizer, self._compression, self.together or 0, self._dimensions
            )
        return self._begun

    def _refuse_differences_of_sums(self) -> None:
        """Refuse a codec that sends differences if servers send sums of gradients, which differ in every round."""
        chosen = self._compression and pull_of(*self._compression) == "difference"
        if (chosen or self.job.differences) and self._optimizer is None and self.job.contribution == "gradient":
            raise ScenarioError(
                "this codec sends differences of values, and without an optimizer the servers send sums of gradients: "
                "write pull: sparse-sum (or dense), or call set_optimizer"
            )

    def _number(self, key: Hashable) -> int:
        if key not in self._keys:
            raise ScenarioError(f"key {key!r} is not known; call init({key!r}, tensor) first")
        self._begin()
        return self._keys[key]
