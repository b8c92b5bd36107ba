"""Decides how a model is computed in stages: the cuts, the order of each stage's passes, and the sizes of messages.

All of this is decided once, when the Plan is made, and kept in it (``PipelinePlan``). So nodes need neither the code of
the schedule nor the step times that it was made for. The model's segments and the sizes of encoded activations are
found with PyTorch's meta device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from testbed.codec.options import CODECS
from testbed.errors import ScenarioError
from testbed.key_shape import MATRIX, KeyShape
from testbed.plan.model import NetworkPlan, NodePlan, PipelinePlan, TrainingPlan
from testbed.plan.pace import step_shares
from testbed.plan.stages import hop_between, replicas_among, workers_of_stage
from testbed.policy.pipeline import SCHEDULES
from testbed.policy.pipeline.base import Hop, PipelineShape, Schedule, text_of
from testbed.policy.pipeline.cuts import cut_at, cut_evenly
from testbed.policy.pipeline.timing import Timing, timing_of
from testbed.settings.job import Choice
from testbed.training.shapes import ModelShape, SegmentShape

Chunks = tuple[tuple[range, ...], ...]
"""For each stage, the parts of the model that it holds, as numbers of segments."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The decided pipeline, and the predicted times of its tasks, by the Plan's step times and rates."""

    pipeline: PipelinePlan
    timing: Timing


def staged(
    pipeline: PipelinePlan, training: TrainingPlan, nodes: Sequence[NodePlan], network: NetworkPlan, seed: int
) -> Staged:
    """Return the pipeline with its cuts, its tasks, and the size of each message between parts of the model.

    Raise ``ScenarioError`` if the model cannot be cut in this way, or the tasks cannot be computed.
    """
    return _Maker(pipeline, training, nodes, network, seed).staged()


def chunks_of(cuts: Sequence[int], segments: int, stages: int) -> Chunks:
    """Return, for each stage, the parts of a model of ``segments`` segments that it holds."""
    parts = cut_at(cuts, segments)
    return tuple(parts[stage::stages] for stage in range(stages))


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of a whole step's time that the passes of the whole batch through one chunk take.

    backward  includes the forward pass, if it is computed again
    weights   the part of ``backward`` for the gradients of the parameters: as many operations as forward
    """

    forward: float
    backward: float
    weights: float


def shares_of(worker: NodePlan, shape: ModelShape, chunks: Sequence[range], *, recompute: bool) -> tuple[Shares, ...]:
    """Return the shares of each chunk of a stage: as measured on the worker's device, or by operations."""
    segments = step_shares(worker, shape)
    found = []
    for chunk in chunks:
        forward = sum(segments[number][0] for number in chunk)
        backward = sum(segments[number][1] for number in chunk)
        again = forward if recompute else 0.0
        found.append(Shares(forward, backward + again, min(forward, backward)))
    return tuple(found)


class _Maker:
    """Makes the decisions for one Plan."""

    def __init__(
        self,
        pipeline: PipelinePlan,
        training: TrainingPlan,
        nodes: Sequence[NodePlan],
        network: NetworkPlan,
        seed: int,
    ) -> None:
        from testbed.training.models.job import shape_of_job

        self._pipeline = pipeline
        self._training = training
        self._network = network
        self._seed = seed
        self._model: ModelShape = shape_of_job(training.model, training.data, seed)
        self._workers = [workers_of_stage(nodes, stage) for stage in range(pipeline.stages)]
        self._replicas = replicas_among(nodes, pipeline.stages)
        self._samples = -(-training.batch_size // pipeline.micro_batches)  # of the largest micro-batch

    def staged(self) -> Staged:
        choice = self._pipeline.schedule
        schedule = SCHEDULES[choice.kind](SCHEDULES.options(choice.kind, choice.options))
        parts = self._parts(schedule)
        sent = [self._sent_after(self._model.segments[part[-1]]) for part in parts[:-1]]
        pipeline = replace(
            self._pipeline,
            cuts=tuple(part.start for part in parts[1:]),
            activation_bytes=self._payloads("activations", self._pipeline.activations, sent),
            gradient_bytes=self._payloads("activation_gradients", self._pipeline.activation_gradients, sent),
        )
        shape = self._shape(chunks_of(pipeline.cuts, len(self._model.segments), pipeline.stages), pipeline)
        tasks = schedule.tasks(shape)
        timing = timing_of(schedule, tasks, shape)
        return Staged(replace(pipeline, tasks=tuple(map(text_of, tasks))), timing)

    def _sent_after(self, segment: SegmentShape) -> KeyShape:
        """Return the shape of a micro-batch's activation after a segment."""
        rows = self._samples * segment.rows
        return KeyShape((rows, segment.outputs // segment.rows), MATRIX)

    def _parts(self, schedule: Schedule) -> tuple[range, ...]:
        """Return the segments of each part of the model, in its order."""
        shape = self._model
        stages = self._pipeline.stages
        chunks = schedule.chunks()
        parts = stages * chunks
        segments = len(shape.segments)
        if parts > segments:
            each = "" if chunks == 1 else f" of {chunks} parts each"
            raise ScenarioError(
                f"paradigm.stages: {stages} stages{each} need {parts} segments, but '{shape.name}' has {segments}, "
                f"which cannot be cut further; write fewer stages, or a deeper model"
            )
        if shape.tied and stages > 1:
            raise ScenarioError(
                f"training.model: the last segment of '{shape.name}' computes with the embeddings of the first one, "
                "which another stage holds; write a model whose embeddings are not tied, such as llama2-7b"
            )
        found = self._ranges(chunks)
        last = [part[-1] for part in found[:-1] if not shape.segments[part[-1]].outputs]
        if last and self._training.compute == "modelled":
            raise ScenarioError(
                f"training.model: the size of the activations of segment {last[0]} of '{shape.name}' is unknown, so "
                "nothing would travel between stages; write a declared model by name, or 'compute: real'"
            )
        return found

    def _ranges(self, chunks: int) -> tuple[range, ...]:
        shape = self._model
        segments = len(shape.segments)
        cuts = self._pipeline.cuts
        if not cuts:
            return cut_evenly([sum(share) for share in shape.time_shares()], self._step_times_s() * chunks)
        if cuts[-1] >= segments:
            raise ScenarioError(
                f"paradigm.cuts: there is no segment {cuts[-1]}: '{shape.name}' has {segments}, from 0 on"
            )
        return cut_at(cuts, segments)

    def _step_times_s(self) -> tuple[float, ...]:
        """Return how long a whole step takes on the slowest worker of each stage."""
        return tuple(max(worker.device.step_time_s for worker in workers) for workers in self._workers)

    def _payloads(self, name: str, choice: Choice, sent: list[KeyShape]) -> tuple[int, ...]:
        """Return the payload bytes of activations of these shapes, or of their gradients.

        Raise ``ScenarioError`` if all are below the codec's ``bound``, so that it would send them all unchanged.
        """
        from testbed.codec.table import payload_bytes
        from testbed.training.stage import ACTIVATION_TYPES

        options = CODECS.options(choice.kind, choice.options)
        bound = getattr(options, "bound", 0)
        elements = [prod(shape.dimensions) for shape in sent]
        if elements and max(elements) < bound:
            raise ScenarioError(
                f"paradigm.{name}: '{choice.kind}' sends tensors of less than {bound} elements as they are, but the "
                f"activations of a micro-batch have {max(elements)}; write 'bound: {max(2, min(elements))}', larger "
                "micro-batches, or 'none'"
            )
        if CODECS[choice.kind].exact:
            return tuple(count * ACTIVATION_TYPES[self._training.precision].itemsize for count in elements)
        return tuple(payload_bytes(choice.kind, choice.options, shape, self._seed) for shape in sent)

    def _shape(self, chunks: Chunks, pipeline: PipelinePlan) -> PipelineShape:
        """Return the times for which the schedule is made.

        All chunks of a stage get the same time, and all replicas the time of the slowest one.
        """
        forward_s = []
        backward_s = []
        weights_s = []
        for step_s, mine, workers in zip(self._step_times_s(), chunks, self._workers, strict=True):
            shares = shares_of(workers[0], self._model, mine, recompute=pipeline.recompute)
            each_s = step_s / len(mine) / pipeline.micro_batches
            forward_s.append(each_s * sum(share.forward for share in shares))
            backward_s.append(each_s * sum(share.backward for share in shares))
            weights_s.append(each_s * sum(share.weights for share in shares))
        stages = range(pipeline.stages)
        down = [self._hop(stage, stage + 1, _of_part(pipeline.activation_bytes, stage)) for stage in stages]
        up = [
            self._hop(stage, stage - 1, _of_part(pipeline.gradient_bytes, (stage - 1) % len(stages)))
            for stage in stages
        ]
        return PipelineShape(
            pipeline.micro_batches,
            tuple(forward_s),
            tuple(backward_s),
            tuple(weights_s),
            tuple(down),
            tuple(up),
        )

    def _hop(self, source: int, target: int, size_bytes: int) -> Hop:
        """Return the hop of a message between two stages, in the replica where it takes longest."""
        longest = Hop()
        for replica in self._replicas:
            ends = replica[source], replica[target % len(replica)]
            if ends[0] == ends[1]:
                continue
            hop = hop_between(self._network, ends[0].data_center, ends[1].data_center, 8.0 * size_bytes)
            longest = max(longest, hop, key=lambda each: each.occupied_s + each.delay_s)
        return longest


def _of_part(sizes: Sequence[int], part: int) -> int:
    """Return the size of the message from this part of the model to the next one; 0 for the last part."""
    return sizes[part] if part < len(sizes) else 0
