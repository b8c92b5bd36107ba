"""The training job of one worker, from the Plan: real mathematics, or shapes only."""

from __future__ import annotations

from testbed.plan.model import NodePlan, Plan
from testbed.training.data import Batches, load_dataset, share_of
from testbed.training.models import build_model
from testbed.training.seeds import seed_for
from testbed.training.trainer import Learner, ShapeTrainer, Trainer


def make_learner(plan: Plan, node: NodePlan) -> Learner:
    """Model and share of the data for ``node``. Each worker draws its own first parameters; the master's will win."""
    training = plan.training
    dataset = load_dataset(training.data.kind, training.data.options, plan.seed)
    seed = seed_for(plan.seed, "model", node.rank)
    model = build_model(training.model.kind, training.model.options, dataset.image_shape, dataset.classes, seed)
    if training.compute == "modelled":
        return ShapeTrainer(tuple(parameter.numel() for parameter in model.parameters()), training.batch_size)
    workers = [worker.name for worker in plan.with_role("worker") if worker.trains]
    rank = workers.index(node.name) if node.trains else 0
    split = training.split
    share = share_of(dataset.train_labels, split.kind, split.options, plan.seed, rank, len(workers))
    return Trainer(model, dataset, Batches(share, training.batch_size, plan.seed, rank))


def warm_up(plan: Plan) -> None:
    """Load what every worker needs into this process, so that workers forked from it, or run in it, start at once."""
    make_learner(plan, plan.with_role("worker")[0])
