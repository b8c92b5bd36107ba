"""The independent reference: one process, one optimizer, the batches of all workers concatenated."""

from __future__ import annotations

import torch
from torch.nn import functional

from testbed.plan.model import Plan
from testbed.training.batches import Batches
from testbed.training.datasets import load_dataset
from testbed.training.models import build_model
from testbed.training.seeds import seed_for
from testbed.training.splits import share_of


def train_single_process(plan: Plan, rounds: int) -> list[torch.Tensor]:
    """Final parameters of plain PyTorch training, as FSA promises to compute them, up to rounding.

    FSA's update sees the sum over N workers of mean gradients: N times the mean over the concatenated batch.
    """
    training, options = plan.training, plan.technique.optimizer.options
    workers = [node for node in plan.with_role("worker") if node.trains]
    dataset = load_dataset(training.data.kind, training.data.options, plan.seed)
    master = plan.with_role("worker")[0]  # whether it trains or not
    seed = seed_for(plan.seed, "model", master.rank)
    model = build_model(training.model.kind, training.model.options, dataset.input_shape, dataset.classes, seed)
    streams = []
    for rank in range(len(workers)):
        share = share_of(
            dataset.train_labels, training.split.kind, training.split.options, plan.seed, rank, len(workers)
        )
        streams.append(Batches(share, training.batch_size, plan.seed, rank))
    kinds = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    optimizer = kinds[plan.technique.optimizer.kind](model.parameters(), lr=options["learning_rate"])
    for step in range(rounds):
        indices = torch.cat([stream.indices(step) for stream in streams])
        loss = functional.cross_entropy(model(dataset.train_inputs[indices]), dataset.train_labels[indices])
        optimizer.zero_grad()
        (loss * len(workers)).backward()
        optimizer.step()
    return [parameter.detach().reshape(-1) for parameter in model.parameters()]
