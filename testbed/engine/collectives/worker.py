"""The worker of data-parallel training without servers: gradients are summed, everybody takes the same step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.step import OptimizerStep
from testbed.engine.collectives.sums import BucketSum
from testbed.engine.evaluation import Evaluation
from testbed.engine.local_work import one_step
from testbed.engine.membership import Membership
from testbed.plan.model import NodePlan, Plan
from testbed.training.learner import Learner, StepResult
from testbed.world import World

Buckets = tuple[tuple[int, ...], ...]  # keys of each bucket


async def first_values(world: World, everybody: Collectives, learner: Learner, buckets: Buckets) -> list[Tensor]:
    """The first worker's values, at all workers, whatever they drew themselves."""
    own = learner.values()
    calls = [everybody.broadcast(torch.cat([own[key] for key in bucket])) for bucket in buckets]
    tasks = [world.spawn(call, "first values") for call in calls]
    for bucket, task in zip(buckets, tasks, strict=True):
        flat = await world.wait(task, f"the first values of keys {bucket[0]} to {bucket[-1]}")
        for key, value in zip(bucket, split(flat, bucket, learner.sizes), strict=True):
            own[key] = value
    learner.load(own)
    return own


def split(flat: Tensor, keys: Sequence[int], sizes: Sequence[int]) -> list[Tensor]:
    """A bucket cut into its keys."""
    return list(torch.split(flat, [sizes[key] for key in keys]))


class AllReduceWorker:
    """One training worker. ``sums[i]`` adds up bucket i. All workers end every round with the same bits."""

    def __init__(
        self, plan: Plan, node: NodePlan, learner: Learner, buckets: Buckets, sums: Sequence[BucketSum],
        step: OptimizerStep,
    ) -> None:  # fmt: skip
        self._plan, self._learner, self._buckets, self._sums = plan, learner, buckets, sums
        self._step = step
        self._training = [worker.name for worker in plan.with_role("worker") if worker.trains]
        self._is_evaluator = node.name == self._training[0]

    async def run(self, world: World, membership: Membership) -> int:
        """Train to the end. Returns the number of rounds done."""
        await membership.barrier("train", len(self._training))
        training, evaluation = self._plan.training, None
        if self._is_evaluator:
            world.record("train", rounds=training.rounds, workers=len(self._training))
            evaluation = Evaluation(world, self._learner, training.evaluate_every, training.target_accuracy)
        round_, last = 0, False
        while not last:
            last = await self._round(world, round_, evaluation)
            round_ += 1
        if evaluation:
            await evaluation.finish(round_ - 1)
        return round_

    async def _round(self, world: World, round_: int, evaluation: Evaluation | None) -> bool:
        started = world.now()
        result = await one_step(self._learner, world, round_, round_)
        reached = await evaluation.before_push(round_) if evaluation else False
        last = await self._synchronise(world, round_, result, reached)
        world.record("round", t0=started, round=round_, loss=result.loss, samples=result.samples)
        if evaluation:
            evaluation.after_round(round_)
        return last or round_ + 1 == self._plan.training.rounds

    async def _synchronise(self, world: World, round_: int, result: StepResult, reached: bool) -> bool:
        """Sum every bucket, all at a time; then step. True when somebody has reached the target."""
        gradients = result.gradients
        tasks = [
            world.spawn(one(torch.cat([gradients[key] for key in bucket]), round_, reached), "a bucket")
            for bucket, one in zip(self._buckets, self._sums, strict=True)
        ]
        for number, task in enumerate(tasks):
            flat, raised = await world.wait(task, f"the sum of bucket {number} in round {round_}")
            reached = reached or raised
            bucket = self._buckets[number]
            for key, total in zip(bucket, split(flat, bucket, self._learner.sizes), strict=True):
                gradients[key] = total
        self._learner.load(await self._step(world, round_, gradients))
        return reached
