"""GPipe: all micro-batches forward, then all backward (Huang et al., NeurIPS 2019).

Without a network it takes (m + s − 1)(t_forward + t_backward). A stage holds the activations of all m micro-batches.
Backward passes begin with the first micro-batch, and not with the last as in the paper: the time is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.policy.pipeline.base import BACKWARD, FORWARD, PipelineShape, Schedule, Task, Tasks


class GPipe(Schedule):
    """All forward passes, then all backward passes."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def tasks(self, shape: PipelineShape) -> Tasks:
        forward = [Task(FORWARD, number) for number in range(shape.micro_batches)]
        backward = [Task(BACKWARD, number) for number in range(shape.micro_batches)]
        return ((*forward, *backward),) * shape.stages
