"""Interleaved 1F1B: each stage holds several chunks of the model (Narayanan et al., Megatron-LM, SC 2021, section 2.2).

With v chunks and without a network, it takes m(t_forward + t_backward) + (s − 1)(t_forward + t_backward)/v, where the
times are those of all chunks of a stage. So it waits 1/v as long as 1F1B, and sends v times as many messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from testbed.axes import option
from testbed.policy.pipeline.base import BACKWARD, FORWARD, PipelineShape, Schedule, Task, Tasks


class Interleaved(Schedule):
    """Micro-batches go through in groups of as many as there are stages, chunk after chunk."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """How finely the model is cut."""

        chunks: int = option(2, "parts of the model that each stage holds", min=2, max=64)

    def chunks(self) -> int:
        chunks: int = self.options.chunks
        return chunks

    def problems(self, stages: int, micro_batches: int) -> Iterator[tuple[str, str]]:
        if micro_batches % stages:
            more = -(-micro_batches // stages) * stages
            yield (
                f"{micro_batches} micro-batches cannot be sent in groups of {stages}, the number of stages",
                f"write 'micro_batches: {more}', or another schedule",
            )

    def tasks(self, shape: PipelineShape) -> Tasks:
        return tuple(self._of_stage(stage, shape) for stage in range(shape.stages))

    def _of_stage(self, stage: int, shape: PipelineShape) -> tuple[Task, ...]:
        stages = shape.stages
        chunks = self.chunks()
        passes = shape.micro_batches * chunks
        # the last stage begins its backward passes when the first group has gone forward through all chunks
        warm_up = min(passes, 2 * (stages - 1 - stage) + (chunks - 1) * stages + 1)

        def task(kind: str, number: int) -> Task:
            group, place = divmod(number, stages * chunks)
            chunk = place // stages
            micro_batch = group * stages + place % stages
            return Task(kind, micro_batch, chunk if kind == FORWARD else chunks - 1 - chunk)

        tasks = [task(FORWARD, number) for number in range(warm_up)]
        for number in range(passes):
            tasks.append(task(BACKWARD, number))
            if number + warm_up < passes:
                tasks.append(task(FORWARD, number + warm_up))
        return tuple(tasks)
