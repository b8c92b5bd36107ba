"""The training job of one worker, from the Plan: real mathematics, or shapes only."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from testbed.devices.accelerator import CPU
from testbed.engine.loading import LoadingTrainer
from testbed.engine.slicing import overlaps
from testbed.placing import place_of
from testbed.plan.model import NodePlan, Plan, computes_in_real_time
from testbed.plan.once import once_per_plan
from testbed.training.batches import Batches
from testbed.training.datasets import Dataset, load_dataset
from testbed.training.learner import SegmentedLearner
from testbed.training.models import assemble, build_model, trained
from testbed.training.models.job import shape_of_job
from testbed.training.options import DATASETS, LOADINGS, MODELS
from testbed.training.options.declarations import NOTHING, OWN_JOBS, PROGRAM, SCRIPT, TRACE
from testbed.training.seeds import seed_for
from testbed.training.shape_trainer import ShapeTrainer
from testbed.training.shapes import ModelShape
from testbed.training.splits import share_of, shares_of
from testbed.training.trainer import Computing, Trainer, configure


def make_learner(
    plan: Plan, node: NodePlan, device: torch.device | None = None, *, on_host: bool = False
) -> SegmentedLearner:
    """Return a learner with the model and the share of the data of ``node``.

    Each node draws its own first parameters, which the master worker's later replace. Frozen parameters are not sent,
    so models that have any are drawn the same at all nodes.

    device   the device that computes; ``None``: the node's own
    on_host  see ``Computing``
    """
    if plan.training.compute == "modelled":
        return ShapeTrainer(shape_only(plan), plan.training.batch_size)
    is_own = device is None
    parts = training_parts(plan, node, device, on_host=on_host)
    trainer = LoadingTrainer(*parts, plan, node) if LOADINGS[plan.training.loading.kind].loads else Trainer(*parts)
    if is_own and warms_up(plan, parts.device):
        trainer.warm_up(by_segments=overlaps(plan))  # before the clock starts
    return trainer


class TrainingParts(NamedTuple):
    """The parts of a trainer."""

    model: nn.Module
    dataset: Dataset
    batches: Batches
    device: torch.device
    computing: Computing


def warms_up(plan: Plan, device: torch.device) -> bool:
    """Return whether the trainer computes a step before the clock starts, whose result is discarded."""
    return computes_in_real_time(plan) or device.type != CPU.type or plan.training.compile


def training_parts(
    plan: Plan, node: NodePlan, device: torch.device | None = None, *, on_host: bool = False
) -> TrainingParts:
    """Return model, data and device of ``node``; the arguments are those of ``make_learner``."""
    training = plan.training
    dataset = load_dataset(training.data.kind, training.data.options, plan.seed)
    about = training.model.kind, training.model.options, dataset.input_shape, dataset.classes
    model = build_model(*about, seed_for(plan.seed, "model", node.rank))
    if len(trained(model)) < len(list(model.parameters())):
        model = build_model(*about, seed_for(plan.seed, "model", 0))
    workers = [worker.name for worker in plan.training_workers]
    rank = workers.index(node.name) if node.name in workers else 0
    split = training.split
    share = share_of(dataset.train_labels, split.kind, split.options, plan.seed, rank, len(workers))
    batches = Batches(share, training.batch_size, plan.seed, rank)
    device = place_of(plan, node) if device is None else device
    configure(training.precision, training.deterministic, device)
    computing = Computing(training.precision, training.accumulate, training.compile, on_host)
    return TrainingParts(model, dataset, batches, device, computing)


def parameter_bytes(plan: Plan) -> int:
    """Return the bytes of the trained parameters; 0 if the job brings its own model (script, program or trace)."""
    model = plan.training.model
    data = plan.training.data
    if MODELS[model.kind].takes in OWN_JOBS:
        return 0
    dataset = load_dataset(data.kind, data.options, plan.seed)
    with torch.device("meta"):
        made = assemble(model.kind, model.options, dataset.input_shape, dataset.classes)
    return sum(parameter.nbytes for parameter in trained(made).values())


def samples_of(plan: Plan) -> list[int]:
    """Return the number of training samples of each training worker, by rank.

    It is 1 for all workers if compute is modelled or the job has no data here.
    """
    workers = len(plan.training_workers)
    data = plan.training.data
    split = plan.training.split
    if plan.training.compute == "modelled" or DATASETS[data.kind].gives in (NOTHING, SCRIPT):
        return [1] * workers
    labels = load_dataset(data.kind, data.options, plan.seed).train_labels
    return [len(share) for share in shares_of(labels, split.kind, split.options, plan.seed, workers)]


@once_per_plan
def shape_only(plan: Plan) -> ModelShape:
    """Return the shape of the Plan's model, without computing anything."""
    return shape_of_job(plan.training.model, plan.training.data, plan.seed)


def shape_of(plan: Plan, learner: SegmentedLearner) -> ModelShape:
    """Return the shape of the job's model. A process counts the model's operations once for all its workers."""
    model = plan.training.model
    data = plan.training.data
    job = MODELS[model.kind], DATASETS[data.kind], repr((model, data, plan.training.compute))
    if job not in _shapes:
        _shapes.clear()
        _shapes[job] = learner.shape
    return _shapes[job]


_shapes: dict[tuple[type[Any], type[Any], str], ModelShape] = {}  # of the last job


def warm_up(plan: Plan) -> None:
    """Load what every worker needs into this process, so that workers forked from it, or run in it, start at once.

    This must not touch a GPU: a CUDA context does not survive a fork. Neither do Autograd's threads, which the first
    backward pass starts if torch finds a GPU, so this makes no backward pass.
    """
    takes = MODELS[plan.training.model.kind].takes
    if takes in (PROGRAM, TRACE):
        return
    if plan.training.compute != "modelled":
        import torch._dynamo  # noqa: F401 - else the first update imports it: 1.5 s in every node, while all others wait
    if takes == SCRIPT:
        return
    learner = make_learner(plan, plan.with_role("worker")[0], CPU)
    if overlaps(plan) and all(node.device.kind == CPU.type for node in plan.nodes):
        shape_of(plan, learner)  # the counting of operations takes seconds to import
