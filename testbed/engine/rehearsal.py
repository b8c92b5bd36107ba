"""Finds, without starting a run, the errors in data, split and model for which it would end before its first step.

``needs_rehearsal`` returns, without importing torch, whether such errors are possible that the scenario's rules have
not ruled out already.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from testbed.axes import names_code, options_of, place_in_code
from testbed.errors import ScenarioError, TestbedError
from testbed.plan.model import Plan
from testbed.plan.pace import step_shares
from testbed.plan.stages import plan_of_stage
from testbed.settings.job import Choice
from testbed.training.options import DATASETS, LOADINGS, MODELS, OPTIMIZERS, SPLITS
from testbed.training.options.declarations import OWN_JOBS

if TYPE_CHECKING:
    from testbed.training.learner import Learner


def needs_rehearsal(plan: Plan) -> bool:
    """Return whether only reading the data or building the model shows whether training can begin."""
    training = plan.training
    if MODELS[training.model.kind].takes in OWN_JOBS:
        return False
    if any(names_code(choice.kind) for choice in (training.model, training.data, training.split)):
        return True
    is_counted = training.compute == "modelled" and any(node.device.memory_bytes for node in plan.training_workers)
    return is_counted or _depends_on_shapes(plan) or (training.compute == "real" and _depends_on_samples(plan))


def _depends_on_samples(plan: Plan) -> bool:
    """Return whether only reading files or making the split shows whether each worker has a sample."""
    data = plan.training.data
    source = DATASETS[data.kind]
    if any("path" in field.metadata for field in fields(options_of(source))):
        return True
    samples = source.training_samples(DATASETS.options(data.kind, data.options))
    return not SPLITS[plan.training.split.kind].equal or samples is None or samples < len(plan.training_workers)


def _depends_on_shapes(plan: Plan) -> bool:
    technique = plan.technique
    return (
        plan.pipeline is not None
        or any(node.device.layers for node in plan.nodes)
        or any(choice.options.get("fragments", 1) > 1 for choice in (technique.sync_tier1, technique.sync_tier2))
        or OPTIMIZERS[technique.optimizer.kind].whole_tensors
        or technique.paradigm.options.get("pull", "all") != "all"
    )


def _one_step(learner: Learner, kind: str) -> None:
    """Compute one step. Raise ``ScenarioError`` for an error raised outside the user's code; pass on other errors."""
    try:
        learner.gradient(0)
    except TestbedError:
        raise
    except Exception as error:
        if place_in_code(error):
            raise
        about = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'without a message'}"
        raise ScenarioError(f"training.model: '{kind}' cannot compute a step: {about}") from error


def rehearse(plan: Plan) -> None:
    """Read and split the data and build the model, on this machine's processor; compute a step of a user's model.

    Raise ``ScenarioError`` for every error that the run itself would raise as soon as its nodes have started.
    """
    from testbed.devices.accelerator import CPU
    from testbed.engine.learner import make_learner, samples_of
    from testbed.engine.pipeline.layout import layout_of
    from testbed.engine.pipeline.memory import check_memory, check_whole_memory
    from testbed.engine.slicing import overlaps, slicer_of, table_widths
    from testbed.engine.streaming import check_fragments
    from testbed.engine.sync_setup import streaming
    from testbed.training.splits import EmptyShares

    training = plan.training
    if plan.pipeline is not None:
        check_memory(plan, layout_of(plan))
        plan = plan_of_stage(plan, 0)  # the replicas of the first stage share the data
    else:
        for node in plan.training_workers:
            check_whole_memory(plan, node)
    try:
        samples_of(plan)
    except EmptyShares as error:
        names = [plan.training_workers[rank].name for rank in error.ranks]
        raise ScenarioError(error.naming(names)) from error
    plain = replace(plan, training=replace(training, loading=Choice(kind=LOADINGS.default), compile=False))
    worker = next(node for node in plan.with_role("worker") if node.trains)
    learner = make_learner(plain, worker, CPU)
    if training.compute == "real" and names_code(training.model.kind) and worker.device.kind == CPU.type:
        _one_step(learner, training.model.kind)
    servers = plan.with_role("global_server") or plan.with_role("server")
    if servers:
        slicer_of(plain)(learner.sizes, len(servers), None)
    if training.compute == "real":
        table_widths(plain, learner)
    stream = streaming(plain)
    if stream is not None:
        check_fragments(stream.fragments, len(learner.sizes))
    if overlaps(plain):
        shape = learner.shape
        for node in plan.with_role("worker"):
            step_shares(node, shape)
