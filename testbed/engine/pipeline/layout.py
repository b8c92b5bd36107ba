"""What every worker of a pipeline computes by itself from the Plan, the same at all: cuts, schedule, and times."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from testbed.codec.options import CODECS
from testbed.codec.table import make_codec
from testbed.engine.learner import shape_only, step_shares
from testbed.errors import ScenarioError
from testbed.plan.model import Plan
from testbed.plan.once import once_per_plan
from testbed.plan.stages import hop_between, plan_of_stage, replicas_of
from testbed.policy.pipeline import SCHEDULES
from testbed.policy.pipeline.base import Hop, PipelineShape, Schedule, Task, Tasks
from testbed.policy.pipeline.cuts import cut_at, cut_evenly
from testbed.policy.pipeline.timing import Timing, timing_of
from testbed.settings.job import Choice
from testbed.training.shapes import ModelShape

ACTIVATION_TYPES = {"float32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
"""Of what segments hand on, by ``training.precision``."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a model is computed in stages.

    chunks  by stage, the parts of the model that it holds, as numbers of segments
    tasks   by stage, what it computes, in order
    timing  when it would compute that, with the Plan's times and rates
    """

    model: ModelShape
    schedule: Schedule
    chunks: tuple[tuple[range, ...], ...]
    tasks: Tasks
    timing: Timing

    def segments_of(self, stage: int) -> str:
        """Return the first and the last segment of each chunk of a stage: ``0-2, 6-8``."""
        return ", ".join(f"{chunk.start}-{chunk.stop - 1}" for chunk in self.chunks[stage])


@once_per_plan
def layout_of(plan: Plan) -> Layout:
    """Return how the Plan's model is computed in stages. Raise ``ScenarioError`` if it cannot be cut so, or in time."""
    pipeline = plan.pipeline
    assert pipeline is not None, "only a pipeline has stages"
    shape = shape_only(plan)
    choice = pipeline.schedule
    schedule = SCHEDULES[choice.kind](SCHEDULES.options(choice.kind, choice.options))
    parts = _parts(plan, shape, schedule.chunks())
    chunks = tuple(parts[stage :: pipeline.stages] for stage in range(pipeline.stages))
    times = _shape_of(plan, shape, chunks)
    tasks = schedule.tasks(times)
    return Layout(shape, schedule, chunks, tasks, timing_of(schedule, tasks, times))


def _parts(plan: Plan, shape: ModelShape, chunks: int) -> tuple[range, ...]:
    """Return the segments of each part of the model, in its order."""
    pipeline = plan.pipeline
    assert pipeline is not None, "only a pipeline has parts"
    parts = pipeline.stages * chunks
    segments = len(shape.segments)
    if parts > segments:
        raise ScenarioError(
            f"paradigm.stages: {pipeline.stages} stages of {chunks} parts each are {parts}, and '{shape.name}' has "
            f"{segments} segments, which are not cut; write fewer stages, or a deeper model"
        )
    if shape.tied and pipeline.stages > 1:
        raise ScenarioError(
            f"training.model: the last segment of '{shape.name}' computes with the embeddings of the first one, which "
            "another stage holds; write a model whose embeddings are not tied, such as llama2-7b"
        )
    found = _ranges(plan, shape, chunks)
    last = [part[-1] for part in found[:-1] if not shape.segments[part[-1]].outputs]
    if last and plan.training.compute == "modelled":
        raise ScenarioError(
            f"training.model: of segment {last[0]} of '{shape.name}' the size of activations is unknown, so nothing "
            "would travel between stages; write a declared model by name, or 'compute: real'"
        )
    return found


def _ranges(plan: Plan, shape: ModelShape, chunks: int) -> tuple[range, ...]:
    pipeline = plan.pipeline
    assert pipeline is not None, "only a pipeline has parts"
    segments = len(shape.segments)
    if pipeline.cuts:
        if pipeline.cuts[-1] >= segments:
            raise ScenarioError(
                f"paradigm.cuts: there is no segment {pipeline.cuts[-1]}: '{shape.name}' has {segments}, from 0 on"
            )
        return cut_at(pipeline.cuts, segments)
    slowness = _step_times_s(plan)
    return cut_evenly([sum(share) for share in shape.time_shares()], slowness * chunks)


def _step_times_s(plan: Plan) -> tuple[float, ...]:
    """Return how long a whole step takes on the slowest worker of each stage."""
    assert plan.pipeline is not None, "only a pipeline has stages"
    return tuple(
        max(worker.device.step_time_s for worker in plan_of_stage(plan, stage).training_workers)
        for stage in range(plan.pipeline.stages)
    )


@dataclass(frozen=True, slots=True)
class Shares:
    """Of a whole step's time, what the passes of the whole batch through one chunk take.

    backward  with the forward pass before it, where that is computed again
    weights   the part of ``backward`` that is the gradients of the parameters: as many operations as forward
    """

    forward: float
    backward: float
    weights: float


def shares_of(plan: Plan, stage: int, shape: ModelShape, chunks: tuple[range, ...]) -> tuple[Shares, ...]:
    """Return the shares of each chunk of a stage: as measured on its device, or by operations."""
    segments = step_shares(plan_of_stage(plan, stage).training_workers[0], shape)
    found = []
    for chunk in chunks:
        forward = sum(segments[number][0] for number in chunk)
        backward = sum(segments[number][1] for number in chunk)
        again = forward if plan.pipeline is not None and plan.pipeline.recompute else 0.0
        found.append(Shares(forward, backward + again, min(forward, backward)))
    return tuple(found)


def _shape_of(plan: Plan, shape: ModelShape, chunks: tuple[tuple[range, ...], ...]) -> PipelineShape:
    """Return what a schedule is made for. Chunks of one stage count alike, and the slowest replica for all."""
    pipeline = plan.pipeline
    assert pipeline is not None, "only a pipeline has a shape"
    times_s = _step_times_s(plan)
    forward_s = []
    backward_s = []
    weights_s = []
    for stage, (step_s, mine) in enumerate(zip(times_s, chunks, strict=True)):
        shares = shares_of(plan, stage, shape, mine)
        each_s = step_s / len(mine) / pipeline.micro_batches
        forward_s.append(each_s * sum(share.forward for share in shares))
        backward_s.append(each_s * sum(share.backward for share in shares))
        weights_s.append(each_s * sum(share.weights for share in shares))
    stages = range(pipeline.stages)
    outputs = [shape.segments[mine[0][-1]].outputs for mine in chunks]
    samples = -(-plan.training.batch_size // pipeline.micro_batches)
    sent = [samples * elements for elements in _between(shape, chunks)]
    _check_bound("activations", pipeline.activations, sent)
    _check_bound("activation_gradients", pipeline.activation_gradients, sent)
    down = [_hop(plan, stage, stage + 1, outputs[stage], pipeline.activations) for stage in stages]
    up = [_hop(plan, stage, stage - 1, outputs[stage - 1], pipeline.activation_gradients) for stage in stages]
    return PipelineShape(
        pipeline.micro_batches,
        tuple(forward_s),
        tuple(backward_s),
        tuple(weights_s),
        tuple(down),
        tuple(up),
    )


def _between(shape: ModelShape, chunks: tuple[tuple[range, ...], ...]) -> list[int]:
    """Return the elements of a sample's activations between each two parts of the model."""
    parts = sorted((part for mine in chunks for part in mine), key=lambda part: part.start)
    return [shape.segments[part[-1]].outputs for part in parts[:-1]]


def _check_bound(name: str, choice: Choice, sent: list[int]) -> None:
    """Raise ``ScenarioError`` where a codec would send all messages of so many elements as they are."""
    options = CODECS.options(choice.kind, choice.options)
    bound = getattr(options, "bound", 0)
    if sent and max(sent) < bound:
        raise ScenarioError(
            f"paradigm.{name}: '{choice.kind}' sends what has less than {bound} elements as it is, and a micro-batch's "
            f"activations have {max(sent)}; write 'bound: {max(2, min(sent))}', larger micro-batches, or 'none'"
        )


def _hop(plan: Plan, source: int, target: int, elements: int, codec: Choice) -> Hop:
    """Return the way of a micro-batch's activations between two stages, in the replica where it takes longest."""
    pipeline = plan.pipeline
    assert pipeline is not None, "only a pipeline has ways"
    samples = -(-plan.training.batch_size // pipeline.micro_batches)
    size_bits = 8.0 * payload_bytes(plan, samples * elements, codec)
    longest = Hop()
    for replica in replicas_of(plan):
        ends = plan.node(replica[source]), plan.node(replica[target % pipeline.stages])
        if ends[0] == ends[1]:
            continue
        hop = hop_between(plan.network, ends[0].data_center, ends[1].data_center, size_bits)
        longest = max(longest, hop, key=lambda each: each.occupied_s + each.delay_s)
    return longest


def payload_bytes(plan: Plan, elements: int, choice: Choice) -> int:
    """Return the bytes of so many elements of activations, or of their gradients, as they travel."""
    if CODECS[choice.kind].exact:
        return elements * ACTIVATION_TYPES[plan.training.precision].itemsize
    codec = make_codec(choice.kind, choice.options, seed=plan.seed, changes=True)
    return sum(part.nbytes for part in codec.encode(0, torch.empty(elements, device="meta")))


def text_of(tasks: tuple[Task, ...]) -> str:
    """Return a stage's tasks for the record: ``F0 F1 B0``; of several chunks, ``F0.1`` is of the second one."""
    return " ".join(
        f"{task.kind[0].upper()}{task.micro_batch}{f'.{task.chunk}' if task.chunk else ''}" for task in tasks
    )
