"""The worker of data-parallel training without servers: gradients are summed, and all workers take the same step.

With ``overlap: buckets`` it sums a bucket as soon as the backward pass has made its gradients, while it makes those of
earlier layers (as PyTorch's DistributedDataParallel: Li et al., VLDB 2020). The same sums of the same values come out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from testbed.engine.checkpoint import Checkpointer, CheckpointFiles
from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.operation import CollectiveMail
from testbed.engine.collectives.step import OptimizerStep
from testbed.engine.collectives.sums import BucketSum
from testbed.engine.evaluation import Evaluation
from testbed.engine.local_work import copying, load_batch, one_step
from testbed.engine.session import Session
from testbed.plan.model import NodePlan, Plan
from testbed.state import State, Stateful, below, joined, take_over, under
from testbed.training.learner import Learner, SegmentedLearner, StepResult
from testbed.world import Future, Work, World

Tasks = dict[int, Future[Any]]  # sums of buckets that have begun, by number
Parts = tuple[Sequence[BucketSum], OptimizerStep]
MakeParts = Callable[[Any, CollectiveMail, list[Tensor]], Awaitable[Parts]]


@dataclass(frozen=True, slots=True)
class Start:
    """What a worker begins to train with: its mail, its place in the run, first values, and its checkpoints."""

    mail: CollectiveMail
    session: Session
    values: list[Tensor]
    checkpointer: Checkpointer

    async def together(self, workers: int) -> None:
        """Return when all workers begin to train, or to go on where a checkpoint was made."""
        if self.checkpointer.resumed:
            await self.checkpointer.resume()
        else:
            await self.session.membership.barrier("train", workers)


Train = Callable[[Any, Start], Awaitable[int]]


def serverless_worker(
    plan: Plan, node: NodePlan, learner: SegmentedLearner, buckets: Buckets, train: Train,
    files: CheckpointFiles | None = None,
) -> Callable[[Any], Awaitable[list[Tensor]]]:  # fmt: skip
    """Return the role of a worker of a run without servers. ``train`` returns the rounds that it has done."""

    async def run(world: Any) -> list[Tensor]:
        session = Session(plan, node, world)
        mail = CollectiveMail(world, session.inbox)
        session.use(learner)
        await session.join()
        values = await first_values(world, mail, plan, learner, buckets)
        start = Start(mail, session, values, Checkpointer(world, session.membership, plan, files))
        rounds = await train(world, start) if node.trains else 0
        await session.finish()
        return await session.record_final(learner.values(), rounds=rounds)

    return run


def data_parallel(
    plan: Plan, node: NodePlan, learner: SegmentedLearner, buckets: Buckets, make_parts: MakeParts,
    files: CheckpointFiles | None = None, *, overlaps: bool,
) -> Callable[[Any], Awaitable[list[Tensor]]]:  # fmt: skip
    """Return the role of a worker that sums gradients with all others, bucket by bucket, and steps with the sums.

    ``overlaps``: sum a bucket when its gradients are there, not after the whole backward pass.
    """

    async def train(world: Any, start: Start) -> int:
        parts = await make_parts(world, start.mail, start.values)
        kind = OverlappingWorker if overlaps else AllReduceWorker
        return await kind(world, plan, learner, buckets, parts).run(start)

    return serverless_worker(plan, node, learner, buckets, train, files)


class AllReduceWorker:
    """One training worker. ``sums[i]`` adds up bucket i. All workers end every round with the same bits."""

    def __init__(self, world: World, plan: Plan, learner: SegmentedLearner, buckets: Buckets, parts: Parts) -> None:
        self._world, self._plan, self._learner = world, plan, learner
        self._buckets, (self._sums, self._step) = buckets, parts
        self._evaluation = Evaluation(world, plan, learner)
        self._memories: dict[str, Stateful] = {
            "learner": learner, "step": self._step,
            **{f"sum/{number}": each for number, each in enumerate(self._sums)},
        }  # fmt: skip

    async def run(self, start: Start) -> int:
        """Train to the end. Return the number of rounds done."""
        workers, checkpointer = len(self._plan.training_workers), start.checkpointer
        if checkpointer.resumed:
            take_over(self._memories, checkpointer.state)
            self._evaluation.load_state(below("evaluation", checkpointer.state))
        await start.together(workers)
        self._evaluation.begin(self._plan.training.rounds, workers)
        round_, last = checkpointer.first_round, False
        while not last:
            last = await self._round(round_)
            if not last and checkpointer.due(round_):
                await checkpointer.save(round_, self._state)
            round_ += 1
        await self._evaluation.finish(round_ - 1)
        return round_

    async def _state(self) -> State:
        return joined(self._memories) | under("evaluation", await self._evaluation.state())

    async def _round(self, round_: int) -> bool:
        started_s = self._world.now()
        result, reached, tasks = await self._compute(round_)
        last = await self._synchronise(round_, result, reached, tasks)
        self._world.record("round", t0=started_s, round=round_, loss=result.loss, samples=result.samples)
        self._evaluation.after_round(round_)
        return last or round_ + 1 == self._plan.training.rounds

    async def _compute(self, round_: int) -> tuple[StepResult, bool, Tasks]:
        """Compute a step, and begin to sum all buckets at the same time.

        Return also whether this worker has reached the target.
        """
        result = await one_step(self._learner, self._world, round_, round_)
        reached = await self._evaluation.before_push(round_)
        gradients, tasks = dict(enumerate(result.gradients)), {}
        for number in range(len(self._buckets)):
            tasks[number] = await self._begin(number, gradients, round_, reached)
        return result, reached, tasks

    async def _begin(self, number: int, gradients: Mapping[int, Tensor], round_: int, reached: bool) -> Future[Any]:
        """Begin to sum a bucket."""
        mine = [gradients[key] for key in self._buckets[number]]
        flat = await self._world.compute(copying(mine), lambda: torch.cat(mine))
        return self._world.spawn(self._sums[number](flat, round_, reached), "a bucket")

    async def _synchronise(self, round_: int, result: StepResult, reached: bool, tasks: Tasks) -> bool:
        """Wait for all sums; then step. Return whether a worker has reached the target.

        The flag travels with the sums, so all workers hear of it in the same round and stop after it.
        """
        gradients = result.gradients
        for number, task in sorted(tasks.items()):
            flat, raised = await self._world.wait(task, f"the sum of bucket {number} in round {round_}")
            reached = reached or raised
            bucket = self._buckets[number]
            for key, total in zip(bucket, split(flat, bucket, self._learner.sizes), strict=True):
                gradients[key] = total
        values = await self._step(self._world, round_, gradients)
        await self._world.compute(copying(values), lambda: self._learner.load(values))
        return reached


class OverlappingWorker(AllReduceWorker):
    """Sums buckets during the backward pass. Segments of the model take their shares of the step's time."""

    async def _compute(self, round_: int) -> tuple[StepResult, bool, Tasks]:
        await load_batch(self._learner, round_, round_)
        step, shape = self._learner.begin(round_), self._learner.shape
        shares = shape.time_shares()
        for segment, (share, _) in enumerate(shares):
            work = Work("step", round_, steps=share, part=f"forward {segment}")
            await self._world.compute(work, partial(step.forward_segment, segment))
        reached = await self._evaluation.before_push(round_)
        gradients: dict[int, Tensor] = {}
        tasks: Tasks = {}
        for segment in reversed(range(len(shape.keys))):
            work = Work("step", round_, steps=shares[segment][1], part=f"backward {segment}")
            made = await self._world.compute(work, partial(step.backward_segment, segment))
            gradients.update(zip(shape.keys[segment], made, strict=True))
            for number, bucket in enumerate(self._buckets):
                if number not in tasks and gradients.keys() >= set(bucket):
                    tasks[number] = await self._begin(number, gradients, round_, reached)
        return StepResult(step.loss, step.samples, [gradients[key] for key in sorted(gradients)]), reached, tasks


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
