"""When the tasks of a schedule begin and end, by the times of passes and messages.

A stage computes one task at a time, and each way carries one message at a time, in the order in which they were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.errors import ScenarioError
from testbed.policy.pipeline.base import BACKWARD, FORWARD, WEIGHTS, PipelineShape, Schedule, Task, Tasks


@dataclass(frozen=True, slots=True)
class Interval:
    """A task of a stage, and its time."""

    task: Task
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Timing:
    """The intervals of each stage."""

    intervals: tuple[tuple[Interval, ...], ...]

    @property
    def end_s(self) -> float:
        return max(intervals[-1].end_s for intervals in self.intervals)


class Clockwork:
    """Runs tasks one by one, each of a stage whose next task can begin, and keeps their times."""

    def __init__(self, shape: PipelineShape, chunks: int, *, splits_backward: bool) -> None:
        self._shape = shape
        self._chunks = chunks
        self._splits = splits_backward
        self._intervals: list[list[Interval]] = [[] for _ in range(shape.stages)]
        self._arrived_s: dict[tuple[int, Task], float] = {}  # by stage and task: when its input arrives
        self._down_free_s = [0.0] * shape.stages
        self._up_free_s = [0.0] * shape.stages
        for micro_batch in range(shape.micro_batches):
            self._arrived_s[0, Task(FORWARD, micro_batch)] = 0.0

    @property
    def tasks(self) -> Tasks:
        """Return the tasks that have run, by stage."""
        return tuple(tuple(each.task for each in intervals) for intervals in self._intervals)

    @property
    def timing(self) -> Timing:
        return Timing(tuple(map(tuple, self._intervals)))

    def start_s(self, stage: int, task: Task) -> float | None:
        """Return when a task could begin; ``None`` while its input has not been computed."""
        arrived_s = self._arrived_s.get((stage, task))
        if arrived_s is None:
            return None
        intervals = self._intervals[stage]
        return max(arrived_s, intervals[-1].end_s if intervals else 0.0)

    def run(self, stage: int, task: Task) -> None:
        """Compute a task that can begin, and send its result."""
        start_s = self.start_s(stage, task)
        assert start_s is not None, f"{task} of stage {stage} lacks its input"
        del self._arrived_s[stage, task]
        end_s = start_s + self._duration_s(stage, task)
        self._intervals[stage].append(Interval(task, start_s, end_s))
        if task.kind == FORWARD:
            self._forward(stage, task, end_s)
        elif task.kind == BACKWARD:
            self._backward(stage, task, end_s)

    def _duration_s(self, stage: int, task: Task) -> float:
        shape = self._shape
        if task.kind == FORWARD:
            return shape.forward_s[stage]
        if task.kind == WEIGHTS:
            return shape.weights_s[stage]
        return shape.backward_s[stage] - (shape.weights_s[stage] if self._splits else 0.0)

    def _forward(self, stage: int, task: Task, end_s: float) -> None:
        last = self._shape.stages - 1
        if stage == last and task.chunk == self._chunks - 1:
            self._arrived_s[stage, task._replace(kind=BACKWARD)] = end_s
            return
        hop = self._shape.down[stage]
        self._down_free_s[stage] = max(end_s, self._down_free_s[stage]) + hop.occupied_s
        target = (stage + 1, task) if stage < last else (0, task._replace(chunk=task.chunk + 1))
        self._arrived_s[target] = self._down_free_s[stage] + hop.delay_s

    def _backward(self, stage: int, task: Task, end_s: float) -> None:
        if self._splits:
            self._arrived_s[stage, task._replace(kind=WEIGHTS)] = end_s
        if stage == 0 and task.chunk == 0:
            return
        hop = self._shape.up[stage]
        self._up_free_s[stage] = max(end_s, self._up_free_s[stage]) + hop.occupied_s
        last = self._shape.stages - 1
        target = (stage - 1, task) if stage else (last, task._replace(chunk=task.chunk - 1))
        self._arrived_s[target] = self._up_free_s[stage] + hop.delay_s


def timing_of(schedule: Schedule, tasks: Tasks, shape: PipelineShape) -> Timing:
    """Return when the tasks of a schedule run. Raise ``ScenarioError`` for tasks that no pipeline can compute."""
    name = type(schedule).__name__
    _check_complete(name, schedule, tasks, shape)
    clockwork = Clockwork(shape, schedule.chunks(), splits_backward=schedule.splits_backward)
    done = [0] * shape.stages
    moved = True
    while moved:
        moved = False
        for stage, mine in enumerate(tasks):
            while done[stage] < len(mine) and clockwork.start_s(stage, mine[done[stage]]) is not None:
                clockwork.run(stage, mine[done[stage]])
                done[stage] += 1
                moved = True
    for stage, mine in enumerate(tasks):
        if done[stage] < len(mine):
            raise ScenarioError(
                f"paradigm.schedule: '{name}' waits for ever: stage {stage} is to compute {_text(mine[done[stage]])}, "
                "which needs passes that the stages beside it compute only later; change the order of its tasks"
            )
    return clockwork.timing


def _check_complete(name: str, schedule: Schedule, tasks: Tasks, shape: PipelineShape) -> None:
    """Raise ``ScenarioError`` unless every stage computes each pass once, backward passes in ascending order."""
    if len(tasks) != shape.stages:
        raise ScenarioError(f"paradigm.schedule: '{name}' has tasks of {len(tasks)} stages; return {shape.stages}")
    kinds = (FORWARD, BACKWARD, WEIGHTS) if schedule.splits_backward else (FORWARD, BACKWARD)
    chunks = range(schedule.chunks())
    expected = {
        Task(kind, number, chunk) for kind in kinds for number in range(shape.micro_batches) for chunk in chunks
    }
    for stage, mine in enumerate(tasks):
        wrong = expected.symmetric_difference(mine)
        if wrong or len(mine) != len(expected):
            task = min(wrong) if wrong else _twice(mine)
            has = "lacks" if task not in mine else "has" if wrong else "has twice"
            raise ScenarioError(
                f"paradigm.schedule: stage {stage} of '{name}' {has} {_text(task)}; every stage computes each of "
                f"{', '.join(kinds)} once for each of {shape.micro_batches} micro-batches and {len(chunks)} chunks"
            )
        for kind in kinds[1:]:
            for chunk in chunks:
                order = [task.micro_batch for task in mine if task.kind == kind and task.chunk == chunk]
                if order != sorted(order):
                    raise ScenarioError(
                        f"paradigm.schedule: stage {stage} of '{name}' runs {kind} in the order {order[:8]}; sums of "
                        "gradients have the same bits only in ascending order"
                    )


def _twice(tasks: Sequence[Task]) -> Task:
    return next(task for task in tasks if tasks.count(task) > 1)


def _text(task: Task) -> str:
    chunk = f" of chunk {task.chunk}" if task.chunk else ""
    return f"{task.kind} of micro-batch {task.micro_batch}{chunk}"
