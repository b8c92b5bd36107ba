"""First values in a run without servers: the first worker's, at all workers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.mail import CollectiveMail
from testbed.plan.model import Plan
from testbed.training.learner import Learner
from testbed.world import World

Buckets = tuple[tuple[int, ...], ...]  # keys of each bucket


async def first_values(
    world: World, mail: CollectiveMail, plan: Plan, learner: Learner, buckets: Buckets
) -> list[Tensor]:
    """Load the first worker's values at all workers, those that do not train included. Return them by key."""
    workers = Collectives(world, mail, [worker.name for worker in plan.with_role("worker")], name="start")
    workers.round = -1  # before training
    values = learner.values()
    calls = [workers.broadcast(torch.cat([values[key] for key in bucket])) for bucket in buckets]
    tasks = [world.spawn(call, "first values") for call in calls]
    for bucket, task in zip(buckets, tasks, strict=True):
        flat = await world.wait(task, f"first values of keys {bucket[0]} to {bucket[-1]} from {workers.ranks[0]}")
        for key, value in zip(bucket, split(flat, bucket, learner.sizes), strict=True):
            values[key] = value
    learner.load(values)
    return values


def split(flat: Tensor, keys: Sequence[int], sizes: Sequence[int]) -> list[Tensor]:
    """Return a bucket cut into its keys."""
    return list(torch.split(flat, [sizes[key] for key in keys]))
