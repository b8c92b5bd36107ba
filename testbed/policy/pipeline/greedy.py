"""Greedy: a stage computes the pass that can begin first, by the rates and delays of the ways between stages.

After CrossPipe (USENIX ATC 2025, arXiv:2507.00217): if the delay of a WAN lies between two stages, 1F1B waits for a
round trip again and again. A schedule that knows the delay sends more micro-batches ahead, as far as there is memory
for their activations. This is list scheduling: of all passes with computed inputs, the pass that can begin earliest is
next. At one stage, a backward pass goes before a forward pass that could begin at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.axes import option
from testbed.policy.pipeline.base import BACKWARD, FORWARD, PipelineShape, Schedule, Task, Tasks
from testbed.policy.pipeline.timing import Clockwork


class Greedy(Schedule):
    """List scheduling over the modelled times."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """How much memory a stage may use."""

        held: int = option(
            0,
            "most micro-batches whose activations a stage holds; 0: no limit. A stage may always hold as many as "
            "there are stages from it to the last",
            max=65_536,
        )

    def tasks(self, shape: PipelineShape) -> Tasks:
        clockwork = Clockwork(shape, chunks=1, splits_backward=False)
        most = self.options.held or shape.micro_batches
        held = [max(most, shape.stages - stage) for stage in range(shape.stages)]
        forward = [0] * shape.stages
        backward = [0] * shape.stages
        for _ in range(2 * shape.micro_batches * shape.stages):
            begun: list[tuple[float, int, int, Task]] = []
            for stage in range(shape.stages):
                candidates = [Task(BACKWARD, backward[stage])]
                if forward[stage] < shape.micro_batches and forward[stage] - backward[stage] < held[stage]:
                    candidates.append(Task(FORWARD, forward[stage]))
                for place, task in enumerate(candidates):
                    start_s = clockwork.start_s(stage, task)
                    if start_s is not None:
                        begun.append((start_s, stage, place, task))
            _, stage, _, task = min(begun)
            clockwork.run(stage, task)
            counts = forward if task.kind == FORWARD else backward
            counts[stage] += 1
        return clockwork.tasks
