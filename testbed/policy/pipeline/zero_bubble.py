"""Zero bubble, schedule H1: gradients of weights fill the waits of 1F1B (Qi et al., ICLR 2024).

The backward pass is split. A stage first computes the gradient of the activation, for which the previous stage waits,
and the gradients of the weights later. Stage i postpones those of i micro-batches to the end, where 1F1B waits. If each
of the three passes takes t, a step of m micro-batches and s stages takes (3m + s − 1)·t without a network, and with
1F1B 3(m + s − 1)·t. Every stage holds the activations of at most s micro-batches, like the first stage of 1F1B.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.policy.pipeline.base import BACKWARD, FORWARD, WEIGHTS, PipelineShape, Schedule, Task, Tasks


class ZeroBubble(Schedule):
    """1F1B whose backward passes are split: gradients of inputs first, those of weights later."""

    splits_backward = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def tasks(self, shape: PipelineShape) -> Tasks:
        return tuple(_of_stage(stage, shape) for stage in range(shape.stages))


def _of_stage(stage: int, shape: PipelineShape) -> tuple[Task, ...]:
    micro_batches = shape.micro_batches
    warm_up = min(shape.stages - stage, micro_batches)
    tasks = [Task(FORWARD, number) for number in range(warm_up)]
    weights = 0  # micro-batches whose gradients of weights are computed
    for number in range(micro_batches):
        tasks.append(Task(BACKWARD, number))
        if number - weights >= stage:
            tasks.append(Task(WEIGHTS, weights))
            weights += 1
        if number + warm_up < micro_batches:
            tasks.append(Task(FORWARD, number + warm_up))
    tasks += [Task(WEIGHTS, number) for number in range(weights, micro_batches)]
    return tuple(tasks)
