"""The role of a worker in a pipeline, from the Plan: the worker makes steps with the other stages of its replica.

Its exchange with the replicas of its own stage, and with servers, is the same as without a pipeline: the stage has a
Plan of its own for that (``plan.stages``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testbed.codec.base import Codec
from testbed.codec.options import CODECS
from testbed.codec.table import make_codec
from testbed.engine.guard import guarded
from testbed.engine.learner import training_parts, warms_up
from testbed.engine.pipeline.evaluation import StageEvaluation
from testbed.engine.pipeline.layout import Layout, layout_of
from testbed.engine.pipeline.mail import PipelineMail
from testbed.engine.pipeline.memory import check_memory, memory_of
from testbed.engine.pipeline.step import Codecs, PipelinedStep, StagePart, keys_of_stage, samples_of
from testbed.engine.serverless import StepAndScore
from testbed.engine.session import Session
from testbed.messages import MessageKind
from testbed.paradigms import REPLICAS
from testbed.plan.model import NodePlan, PipelinePlan, Plan
from testbed.plan.pipeline import shares_of
from testbed.plan.stages import plan_of_stage, replicas_of, workers_of_stage
from testbed.policy.pipeline.base import WEIGHTS, most_held, text_of
from testbed.settings.job import Choice
from testbed.training.learner import SegmentedLearner
from testbed.training.stage import ACTIVATION_TYPES, ShapeStage, StageCut, StageTrainer


@dataclass(frozen=True, slots=True)
class StageWorker:
    """A worker as the replicas of its stage have it.

    plan, node  of its stage alone; ``whole``: the run's
    make_own    makes how it makes steps and how the model is scored, before messages are read
    """

    whole: Plan
    plan: Plan
    node: NodePlan
    learner: SegmentedLearner
    make_own: Callable[[Session], StepAndScore]


def stage_worker(plan: Plan, node: NodePlan) -> StageWorker:
    """Return the worker ``node`` of a Plan with a pipeline, with its stage of the model."""
    pipeline = plan.pipeline
    assert pipeline is not None and node.stage is not None, "a worker of a pipeline has a stage"
    stage = node.stage
    layout = layout_of(plan)
    check_memory(plan, layout)
    own_plan = plan_of_stage(plan, node.stage)
    own_node = own_plan.node(node.name)
    cut = StageCut(
        chunks=layout.chunks[node.stage],
        micro_batches=pipeline.micro_batches,
        first=node.stage == 0,
        last=node.stage == pipeline.stages - 1,
        recomputes=pipeline.recompute,
        whole=node.name == replicas_of(plan)[0][0],
    )
    learner = guarded(plan, node, _learner(own_plan, own_node, layout, cut))
    replica = replicas_of(plan)[own_node.rank]

    def make_own(session: Session) -> StepAndScore:
        keys = layout.model.keys
        places = [keys_of_stage(keys, chunks) for chunks in layout.chunks]
        evaluation = StageEvaluation(session.world, plan, learner, session.inbox, replica, places)
        session.keys = places[stage]
        part = _part(plan, node, layout, replica)
        mail = PipelineMail(session.world, session.inbox)
        _record(session, node, layout)
        step = PipelinedStep(session.world, mail, part, _codecs(plan, pipeline), evaluation)
        return StepAndScore(step, evaluation)

    return StageWorker(plan, own_plan, own_node, learner, make_own)


def _learner(plan: Plan, node: NodePlan, layout: Layout, cut: StageCut) -> SegmentedLearner:
    if plan.training.compute == "modelled":
        activation = ACTIVATION_TYPES[plan.training.precision]
        return ShapeStage(layout.model, plan.training.batch_size, cut, activation)
    parts = training_parts(plan, node, on_host=REPLICAS[plan.technique.paradigm.kind].models)
    return StageTrainer(*parts, cut, warms_up=warms_up(plan, parts.device))


def _part(plan: Plan, node: NodePlan, layout: Layout, replica: tuple[str, ...]) -> StagePart:
    pipeline = plan.pipeline
    assert pipeline is not None and node.stage is not None, "a worker of a pipeline has a stage"
    chunks = layout.chunks[node.stage]
    tasks = layout.tasks[node.stage]
    first = workers_of_stage(plan.nodes, node.stage)[0]
    return StagePart(
        stage=node.stage,
        stages=pipeline.stages,
        before=replica[node.stage - 1],
        after=replica[(node.stage + 1) % pipeline.stages],
        chunks=len(chunks),
        tasks=tasks,
        shares=shares_of(first, layout.model, chunks, recompute=pipeline.recompute),
        samples=samples_of(plan.training.batch_size, pipeline.micro_batches),
        splits=any(task.kind == WEIGHTS for task in tasks),
    )


def _record(session: Session, node: NodePlan, layout: Layout) -> None:
    """Record what this worker computes, once."""
    assert node.stage is not None, "a worker of a pipeline has a stage"
    stage = node.stage
    session.world.record(
        "stage",
        stage=stage,
        segments=layout.segments_of(stage),
        tasks=text_of(layout.tasks[stage]),
        held=most_held(layout.tasks[stage]),
        memory_bytes=memory_of(session.plan, layout, stage).total,
    )


def _codecs(plan: Plan, pipeline: PipelinePlan) -> Codecs:
    def maker(choice: Choice) -> Callable[[str], Codec] | None:
        if CODECS[choice.kind].exact:
            return None
        # as of changes of models: no momentum is put into what is no gradient of a parameter
        return lambda sender: make_codec(choice.kind, choice.options, seed=plan.seed, changes=True, sender=sender)

    makers = {
        MessageKind.ACTIVATION: maker(pipeline.activations),
        MessageKind.ACTIVATION_GRADIENT: maker(pipeline.activation_gradients),
    }
    return Codecs(makers, pipeline.error_feedback)
