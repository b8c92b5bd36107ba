"""The contract of a schedule: the order in which each stage computes the passes of micro-batches, without tensors.

A model is cut into stages, a batch into micro-batches. A stage may hold several parts of the model (chunks): with
three stages and two chunks, stage 0 has parts 0 and 3, stage 1 parts 1 and 4, stage 2 parts 2 and 5. A micro-batch goes
forward through all parts in order, and backward through all in reverse.

``docs/axes/schedule.md`` explains the contract with a worked example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

from testbed.preset import Preset

FORWARD = "forward"
BACKWARD = "backward"
WEIGHTS = "weights"
"""The gradients of the weights, if the backward pass is split; ``BACKWARD`` is then the gradient of the activations."""


class Task(NamedTuple):
    """One pass of one micro-batch through one chunk of a stage."""

    kind: str
    micro_batch: int
    chunk: int = 0


Tasks = tuple[tuple[Task, ...], ...]
"""By stage: its tasks, in order."""

_KINDS = {kind[0].upper(): kind for kind in (FORWARD, BACKWARD, WEIGHTS)}


def text_of(tasks: Iterable[Task]) -> str:
    """Return a stage's tasks as text for the Plan: ``F0 F1 B0``. ``F0.1`` is a pass through the second chunk."""
    return " ".join(
        f"{task.kind[0].upper()}{task.micro_batch}{f'.{task.chunk}' if task.chunk else ''}" for task in tasks
    )


def tasks_of(text: str) -> tuple[Task, ...]:
    """Inverse of ``text_of``."""
    return tuple(Task(_KINDS[word[0]], *map(int, word[1:].split("."))) for word in text.split())


def most_held(tasks: Iterable[Task]) -> int:
    """Return the largest number of forward passes whose activations a stage with these tasks holds at a time."""
    mine = tuple(tasks)
    last = WEIGHTS if any(task.kind == WEIGHTS for task in mine) else BACKWARD
    changes = (1 if task.kind == FORWARD else -1 if task.kind == last else 0 for task in mine)
    return max(accumulate(changes), default=0)


@dataclass(frozen=True, slots=True)
class Hop:
    """The way of a message between two stages: it occupies the way for ``occupied_s`` and arrives ``delay_s`` later."""

    occupied_s: float = 0.0
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PipelineShape:
    """The pipeline for which a schedule is made. All times are by stage, for one micro-batch and one chunk.

    forward_s   seconds of the forward pass
    backward_s  seconds of the whole backward pass
    weights_s   the part of ``backward_s`` for the gradients of the weights
    down        by stage, the way of an activation to the next stage; from the last stage to the first (next chunk)
    up          by stage, the way of an activation's gradient to the stage before; from the first stage to the last
    """

    micro_batches: int
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    weights_s: tuple[float, ...]
    down: tuple[Hop, ...]
    up: tuple[Hop, ...]

    @property
    def stages(self) -> int:
        return len(self.forward_s)


class Schedule(ABC):
    """Made as ``cls(cls.Options(...))`` while the Plan is made, which contains its tasks.

    splits_backward  whether the gradients of the weights are tasks of their own (``WEIGHTS``)
    presets          named techniques that use this class; a subclass does not inherit them
    """

    splits_backward: ClassVar[bool] = False
    presets: ClassVar[tuple[Preset, ...]] = ()
    Options: ClassVar[type[Any]]

    def __init__(self, options: Any) -> None:
        self.options = options

    def chunks(self) -> int:
        """Return how many parts of the model each stage holds."""
        return 1

    def problems(self, stages: int, micro_batches: int) -> Iterator[tuple[str, str]]:
        """Yield pairs of why the schedule is impossible for these stages and micro-batches, and the cure."""
        yield from ()

    @abstractmethod
    def tasks(self, shape: PipelineShape) -> Tasks:
        """Return the tasks of each stage. Micro-batches of one chunk go backward in ascending order.

        So sums of gradients have the same bits with every schedule.
        """
