"""1F1B: one forward, one backward pass in turn (Narayanan et al., PipeDream, SOSP 2019, with a flush after each batch).

Without a network it takes as long as GPipe, (m + s − 1)(t_forward + t_backward); but stage i of s holds the activations
of at most s − i micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.policy.pipeline.base import BACKWARD, FORWARD, PipelineShape, Schedule, Task, Tasks


class OneFOneB(Schedule):
    """As many forward passes as there are stages from here to the last, then backward and forward in turn."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def tasks(self, shape: PipelineShape) -> Tasks:
        return tuple(_of_stage(shape.stages - stage, shape.micro_batches) for stage in range(shape.stages))


def _of_stage(held: int, micro_batches: int) -> tuple[Task, ...]:
    """Return the tasks of a stage that holds the activations of at most ``held`` micro-batches."""
    warm_up = min(held, micro_batches)
    tasks = [Task(FORWARD, number) for number in range(warm_up)]
    for number in range(micro_batches):
        tasks.append(Task(BACKWARD, number))
        if number + warm_up < micro_batches:
            tasks.append(Task(FORWARD, number + warm_up))
    return tuple(tasks)
