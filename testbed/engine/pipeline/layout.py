"""The stages of a model: how the Plan cuts the model, and the tasks of each stage."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.engine.learner import shape_only
from testbed.plan.model import Plan
from testbed.plan.once import once_per_plan
from testbed.plan.pipeline import Chunks, chunks_of
from testbed.policy.pipeline.base import Tasks, tasks_of
from testbed.training.shapes import ModelShape


@dataclass(frozen=True, slots=True)
class Layout:
    """How a model is computed in stages.

    chunks  by stage: the parts of the model that it holds, as numbers of segments
    tasks   by stage: its tasks, in order
    """

    model: ModelShape
    chunks: Chunks
    tasks: Tasks

    def segments_of(self, stage: int) -> str:
        """Return the first and the last segment of each chunk of a stage: ``0-2, 6-8``."""
        return ", ".join(f"{chunk.start}-{chunk.stop - 1}" for chunk in self.chunks[stage])


@once_per_plan
def layout_of(plan: Plan) -> Layout:
    """Return how the Plan's model is computed in stages."""
    pipeline = plan.pipeline
    assert pipeline is not None, "only a pipeline has stages"
    model = shape_only(plan)
    chunks = chunks_of(pipeline.cuts, len(model.segments), pipeline.stages)
    return Layout(model, chunks, tuple(map(tasks_of, pipeline.tasks)))
