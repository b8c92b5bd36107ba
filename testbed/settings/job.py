"""The settings of a job: the training and its devices, or the program that runs instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Generic, Self, TypeVar

from testbed.declaration import Problem, derived, item, option, other_than_default, required
from testbed.job_trace.model import Rates
from testbed.placeholders import PLACEHOLDERS, unknown
from testbed.settings.series import Series, Slowdown
from testbed.suggest import suggestion
from testbed.target import ACCURACY, LOSS, Target

Technique = TypeVar("Technique")
ANY_GPU = -1
_OF_PROGRAMS = ("per", "ends", "listens", "env", "cwd", "timeout_s", "metrics")
_OF_TRACES = ("kineto", "groups", "flops", "memory_bps", "placement")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One technique on one axis: ``Choice(kind="ssp", options={"staleness": 3})``. The axis knows the valid options."""

    kind: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(Generic[Technique]):
    """The job. It ends after ``rounds`` rounds, or earlier when ``target`` is reached on the test set."""

    # ``Technique``: in a scenario, a technique with its declarations; in a Plan, only a ``Choice``

    model: Technique = required(axis="model")
    """The model."""
    data: Technique = required(axis="data")
    """The data set."""
    split: Technique = option(Choice(kind="iid"), axis="split")
    """How the data is split over the workers."""
    batch_size: int = option(32, min=1, max=65_536, key="batch")
    """Samples of one step of one worker."""
    rounds: int = required(min=1, max=10_000_000, sample=10_000_000)
    """Rounds after which the run ends."""
    evaluate_every: int = option(10, min=1, max=10_000_000)
    """Rounds between two evaluations. An evaluation takes no time on the run's clock."""
    target_accuracy: float | None = option(None, unit="share", min=0.001)
    """Test accuracy at which the run ends before its last round."""
    target_loss: float | None = option(None, min=1e-9)
    """Loss on the test set at which the run ends before its last round; instead of an accuracy."""
    compute: str = option("real", choices=("real", "modelled"))
    """real: tensors are computed. modelled: only the sizes of tensors are known, for thousands of data centres; only
    with simulate."""
    loading: Technique = option(Choice(kind="in_memory"), axis="loading")
    """Where samples come from: all from memory, or through a hierarchy of caches."""
    precision: str = option("float32", choices=("float32", "tf32", "bf16"))
    """Precision of forward and backward passes; parameters, gradients and sums are float32. tf32: matrices are
    multiplied in TF32 (GPUs only). bf16: automatic mixed precision with bfloat16."""
    accumulate: int = option(1, min=1, max=65_536)
    """Parts into which a batch is cut to save memory; their gradients are averaged."""
    compile: bool = False
    """Whether models are compiled (torch.compile), before training begins."""
    deterministic: bool = False
    """Whether to use only operations that give equal bits every time. This matters on GPUs, where other operations are
    faster."""

    def problems(self) -> Iterator[Problem]:
        if self.accumulate > self.batch_size:
            problem = f"{self.accumulate} parts of a batch of {self.batch_size} samples"
            yield "accumulate", problem, f"write {self.batch_size} or less, or a larger batch"
        if self.target_accuracy is not None and self.target_loss is not None:
            problem = "is a second target beside target_accuracy, but a run ends at one"
            yield "target_loss", problem, "write one of them, and null for the other"
        if self.target is not None and self.evaluate_every > self.rounds:
            problem = f"{self.evaluate_every} is more than training.rounds ({self.rounds})"
            yield "evaluate_every", problem, f"target_{self.target.measure} would never be reached"

    def aiming_at(self, target: Target | None) -> Self:
        """Return the same job with another target, or with none."""
        return replace(
            self,
            target_accuracy=target.value if target is not None and target.measure == ACCURACY else None,
            target_loss=target.value if target is not None and target.measure == LOSS else None,
        )

    @property
    def target(self) -> Target | None:
        """The accuracy or loss at which the run ends before its last round; ``None`` if there is no target."""
        if self.target_accuracy is not None:
            return Target(ACCURACY, self.target_accuracy)
        return None if self.target_loss is None else Target(LOSS, self.target_loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The device of a worker, and how long one training step takes on it.

    In a Plan, ``pace`` is never ``auto``, ``step_time_s`` is already divided by ``speed``, and ``slowdown`` counts from
    the worker's first step. The virtual world needs a step time even for ``measured``, as its model of the step.
    """

    pace: str = option("auto", choices=("auto", "paced", "measured"))
    """paced: a step computes, then waits until its step time has passed. measured: it takes as long as it computes; in
    an exact run, which needs exact.cpu: measured for it, it takes the processor's time divided by speed. auto: measured
    on a GPU of a real run, else paced."""
    step_time_s: float = option(0.05, unit="s", min=1e-6)
    """Time of one training step at speed 1."""
    speed: float = option(1.0, min=0.001, max=1000.0)
    """How many times faster the device is than step_time says; 0.5 makes a straggler."""
    kind: str = option("cpu", choices=("cpu", "cuda"))
    """Where workers compute."""
    index: int = option(ANY_GPU, min=0, max=1023, words={"auto": ANY_GPU})
    """Number of the GPU; auto: the one with the least load when the run starts."""
    share: float = option(1.0, unit="share", min=0.01)
    """Part of a GPU that a worker's step occupies while it computes: at 50 %, steps of two workers run at one time; at
    100 %, workers of one GPU take turns."""
    memory_bytes: int = option(0, unit="bytes", max=10**15, absent=0)
    """Memory of a worker's device. A scenario whose declared model or pipeline stage needs more is refused."""
    variation: float = option(0.0, unit="share")
    """Variation of step times: their standard deviation as a share of the mean. The seed draws step times from a
    lognormal distribution."""
    slowdown: Series | None = option(None, section=Slowdown)
    """Times at which the device is slower: a list of {at: 10 s, factor: 5}."""
    codec_speed: float = option(1.0, min=0.001, max=1000.0)
    """How many times faster codecs are than the table of costs says (`simulation.costs`); in virtual time only."""
    layers: tuple[tuple[float, float], ...] = option((), form="profile", key="profile")
    """Instead of step_time, {file: NAME.csv}: forward and backward times of the model's layers, as `testbed profile`
    measures them. A data centre or worker with a step time of its own uses no profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSection(Device):
    """The devices of workers and servers, and how long one training step takes on a worker's."""

    server_device: str = option("cpu", choices=("cpu", "cuda"))
    """Where servers aggregate and optimize."""
    step_times: dict[str, float] | None = option(None, form="step_times")
    """Step times of individual workers, instead of step_time: {file: NAME.csv} with the columns worker,step_time_ms. A
    row's worker is DATA_CENTER/workerN, or DATA_CENTER for all of its workers. Settings of a worker or data centre take
    precedence over its row, and a worker's row takes precedence over settings of its data centre."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A user's program: one process per node, by rank. Commands and variables may contain placeholders.

    ``testbed.placeholders`` lists the placeholders.
    """

    command: tuple[str, ...] = option((), form="command")
    """A program and its arguments, as a list or as a shell would read it; one process per worker, with the variables
    that torchrun sets. Placeholders such as {rank} are replaced; docs/programs.md lists them."""
    first: tuple[str, ...] = option((), form="command")
    """The command of the first worker, if it differs: a server, or a launcher that starts the other processes."""
    ends: str = option("all", choices=("all", "first", "others"))
    """The processes whose end ends the run: all, the first, or all others. The rest are then stopped."""
    listens: int = option(0, min=1, max=65_535, absent=0)
    """TCP port of the first worker; the other workers start when something listens on this port."""
    workers: tuple[int, ...] = derived(())  # number of workers that each node stands for, by rank
    env: dict[str, Annotated[str, item(form="argument")]] = option(dict)
    """Environment variables."""
    cwd: str = option("", form="argument", absent="")
    """Working directory, relative to the scenario's folder; by default that folder."""
    timeout_s: float = option(3600.0, unit="s", min=1e-6)
    """Longest duration of the run."""
    metrics: str = option("", form="argument", absent="")
    """stdout, or a file, to which the program writes JSON lines with 'step', and 'loss', 'accuracy' or 'samples'."""
    sha256: str = option("", absent="")
    """Hash of the files that the commands or the trace name, at the time when the scenario was read. Do not write it by
    hand."""


@dataclass(frozen=True, kw_only=True)  # without slots, as no class can inherit from two classes with slots
class TracedJob:
    """A job that was traced elsewhere. Each worker plays one rank; see ``testbed.job_trace``."""

    trace: str = option("", absent="")
    """Execution traces in Chakra's format, beside the scenario: a folder with a file for each rank, or a path with
    {rank} in place of the rank's number."""
    kineto: str = option("", absent="")
    """Files that PyTorch's profiler wrote, one for each rank, if 'trace' names files of PyTorch's
    ExecutionTraceObserver."""
    groups: str = option("", absent="")
    """A JSON file of process groups, {"NAME": [ranks]}, if the trace does not declare them."""
    flops: float = option(0.0, absent=0.0, max=1e18)
    """Operations per second of a worker's device, for work whose trace states operations but no duration."""
    memory_bps: float = option(0.0, unit="bit/s", key="memory_rate", absent=0.0, max=1e15)
    """Rate of the device's memory, for sums and for work whose trace states bytes but no duration."""
    ranks: tuple[str, ...] = derived(())  # the worker of each rank
    sha256: str = option("", absent="")
    """Hash of the trace's files at the time when the scenario was read. Do not write it by hand."""

    @property
    def rates(self) -> Rates:
        return Rates(self.flops, self.memory_bps / 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(Program, TracedJob):
    """A user's own training code, any program, or a job's trace, instead of a named model and data set."""

    script: str = option("", absent="")
    """A Python file in or below the scenario's folder, or an absolute path if the scenario may name code; see
    testbed/kvstore for the functions that it may call."""
    per: str = option("worker", choices=("worker", "host"))
    """worker: every worker is a host with one process. host: every data centre is one host with one process."""
    placement: dict[str, tuple[int, ...]] = option(dict)
    """Ranks of the trace by data centre, each played by one worker there: {tokyo: [0, 2]}. By default, workers play the
    ranks in order."""

    @property
    def is_program(self) -> bool:
        return bool(self.command or self.first)

    def problems(self) -> Iterator[Problem]:
        given = [name for name, is_given in (("script", self.script), ("trace", self.trace)) if is_given]
        if not given and not self.is_program:
            yield (), "has neither 'script', 'command' nor 'trace'", "write 'command: python train.py'"
        if len(given) + self.is_program > 1:
            yield (
                given[-1],
                f"is written beside a {'command' if self.is_program else given[0]}",
                "remove one of the two",
            )
            return
        if self.ends == "others" and not self.command:
            yield "ends", "only the first process is started", "write 'command' for the others"
        for key in other_than_default(self, *_OF_PROGRAMS) if given else ():
            yield key, f"has no effect on '{given[0]}'", "remove it, or write 'command: …'"
        for key in other_than_default(self, *_OF_TRACES) if not self.trace else ():
            yield key, "is for a job's trace, but there is none", "remove it, or write 'trace: …'"
        if self.listens and self.is_program and not self.command:
            yield "listens", "no process waits for the first", "remove it, or write 'command' for the others"
        placed = [rank for ranks in self.placement.values() for rank in ranks]
        if sorted(placed) != list(range(len(placed))):
            yield "placement", "must name each rank, from 0 on, exactly once", "write {tokyo: [0, 1], virginia: [2, 3]}"
        yield from self._problems_of_texts()

    def _problems_of_texts(self) -> Iterator[Problem]:
        for name in self.env:
            if not _VARIABLE.fullmatch(name):
                yield ("env", name), "is not a name of an environment variable", "letters, digits and '_' only"
        for key, texts in (("command", self.command), ("first", self.first), ("env", self.env.values())):
            for word in (word for text in texts for word in unknown(text)):
                if hint := suggestion(word, PLACEHOLDERS):
                    yield key, f"'{{{word}}}' is not a placeholder", hint
