"""GPipe in waves: a part of the micro-batches forward and backward, then the next part, so that fewer are held."""

from dataclasses import dataclass

from testbed.axes import option
from testbed.policy.pipeline.base import BACKWARD, FORWARD, PipelineShape, Schedule, Task, Tasks


class Waves(Schedule):
    """As many micro-batches at a time as ``size`` says."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """How many go together."""

        size: int = option(4, "micro-batches of a wave", min=1)

    def tasks(self, shape: PipelineShape) -> Tasks:
        tasks: list[Task] = []
        for first in range(0, shape.micro_batches, self.options.size):
            wave = range(first, min(first + self.options.size, shape.micro_batches))
            tasks += [Task(FORWARD, number) for number in wave]
            tasks += [Task(BACKWARD, number) for number in wave]
        return (tuple(tasks),) * shape.stages
