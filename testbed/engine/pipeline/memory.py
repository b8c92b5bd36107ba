"""How much memory of its device a worker needs for a model, or for a stage of it, and whether that fits.

The count includes float32 parameters, their gradients, the optimizer's state, and the activations that backward passes
need, for as many micro-batches as the schedule has under way. It excludes communication buffers and the memory that a
library takes for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from testbed.engine import sync_setup
from testbed.engine.learner import shape_only
from testbed.engine.pipeline.layout import Layout
from testbed.engine.slicing import optimizer_at_top
from testbed.errors import ScenarioError
from testbed.numbers import size
from testbed.plan.model import NodePlan, Plan
from testbed.plan.once import once_per_plan
from testbed.plan.stages import plan_of_stage
from testbed.policy.events import Contribution
from testbed.policy.pipeline.base import most_held
from testbed.settings.job import Choice
from testbed.training.optimizers import KeyOptimizer
from testbed.training.stage import ACTIVATION_TYPES

_NUMBER_BYTES = 4  # of a parameter, a gradient, and a number of an optimizer's state
_PROBED = 64  # elements, of an optimizer whose state is counted


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes that a worker needs. ``activations``: of all micro-batches that are under way at a time."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.activations

    def __str__(self) -> str:
        return (
            f"parameters {size(self.parameters)}, gradients {size(self.gradients)}, optimizer "
            f"{size(self.optimizer)}, activations {size(self.activations)}"
        )


def memory_of(plan: Plan, layout: Layout, stage: int) -> DeviceMemory:
    """Return the memory that a worker of this stage needs."""
    chunks = layout.chunks[stage]
    segments = [layout.model.segments[number] for chunk in chunks for number in chunk]
    elements = sum(count for segment in segments for count in segment.sizes)
    assert plan.pipeline is not None, "only a pipeline has stages"
    samples = -(-plan.training.batch_size // plan.pipeline.micro_batches)
    under_way = most_held(layout.tasks[stage])
    held = sum(segment.held for segment in segments) * under_way / len(chunks)
    if plan.pipeline.recompute:  # chunk inputs of all micro-batches under way, and all activations of one backward pass
        inputs = [layout.model.segments[chunk[0] - 1].outputs for chunk in chunks if chunk[0]]
        largest = max(sum(layout.model.segments[number].held for number in chunk) for chunk in chunks)
        held = sum(inputs) * under_way / len(chunks) + largest
    return _memory(plan, elements, held * samples)


@once_per_plan
def memory_of_whole(plan: Plan) -> DeviceMemory:
    """Return the memory that a worker with the whole model needs."""
    model = shape_only(plan)
    samples = -(-plan.training.batch_size // plan.training.accumulate)
    return _memory(plan, sum(model.sizes), samples * sum(segment.held for segment in model.segments))


def _memory(plan: Plan, elements: int, activations: float) -> DeviceMemory:
    """``elements``: the number of parameters; ``activations``: how many numbers of activations are held."""
    return DeviceMemory(
        parameters=_NUMBER_BYTES * elements,
        gradients=_NUMBER_BYTES * elements,
        optimizer=_NUMBER_BYTES * elements * _optimizer_numbers(plan),
        activations=round(activations * ACTIVATION_TYPES[plan.training.precision].itemsize),
    )


def _optimizer_numbers(plan: Plan) -> int:
    """Return how many numbers a worker keeps for each parameter in addition to its value and its gradient."""
    technique = plan.technique
    has_servers = bool(plan.with_role("global_server"))
    if sync_setup.contribution_of(plan) is Contribution.GRADIENT:
        return 0 if has_servers and optimizer_at_top(plan) else _state_numbers(technique.optimizer)
    # also the values of the last exchange and, without servers, the state of the outer optimizer
    outer = 0 if has_servers else _state_numbers(sync_setup.stepped_with(plan))
    return _state_numbers(technique.optimizer) + 1 + outer


def _state_numbers(optimizer: Choice) -> int:
    return _counted(optimizer.kind, tuple(optimizer.options.items()))


@cache
def _counted(kind: str, options: tuple[tuple[str, Any], ...]) -> int:
    """Return how many numbers an optimizer's state has per parameter, without the value: a step on a probe shows it."""
    key = KeyOptimizer(kind, dict(options), torch.ones(_PROBED))
    key.step(torch.ones(_PROBED))
    tensors = [each for each in key.state().values() if isinstance(each, torch.Tensor)]
    return max(0, sum(each.numel() for each in tensors) // _PROBED - 1)


def check_whole_memory(plan: Plan, worker: NodePlan) -> None:
    """Raise ``ScenarioError`` if a declared model does not fit into a worker's memory, where that is known."""
    if plan.training.compute != "modelled" or not worker.device.memory_bytes:
        return
    needed = memory_of_whole(plan)
    if worker.device.memory_bytes < needed.total:
        raise ScenarioError(
            f"device.memory: the whole model needs {size(needed.total)} ({needed}), but {worker.name} has "
            f"{size(worker.device.memory_bytes)}; write 'paradigm: pipeline', a smaller batch, 'training.accumulate', "
            "or a device with more memory"
        )


def check_memory(plan: Plan, layout: Layout) -> None:
    """Raise ``ScenarioError`` if a stage does not fit into the memory of one of its workers, where that is known."""
    assert plan.pipeline is not None, "only a pipeline has stages"
    for stage in range(plan.pipeline.stages):
        needed = memory_of(plan, layout, stage)
        for worker in plan_of_stage(plan, stage).training_workers:
            if 0 < worker.device.memory_bytes < needed.total:
                raise ScenarioError(
                    f"device.memory: stage {stage} needs {size(needed.total)} ({needed}), but {worker.name} has "
                    f"{size(worker.device.memory_bytes)}; write more stages, more micro-batches, "
                    "'recompute: true', a schedule that holds fewer micro-batches, or a device with more memory"
                )
