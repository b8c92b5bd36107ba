"""The worker: computes gradients, pushes them, takes the new values, round after round."""

from __future__ import annotations

from testbed.engine.evaluation import Evaluation
from testbed.engine.kvstore import KVStore
from testbed.engine.membership import Membership
from testbed.plan.model import NodePlan, Plan
from testbed.training.trainer import Learner, StepResult
from testbed.world import Work, World


class Worker:
    """One worker of one data centre. ``evaluation`` is None on all workers but one."""

    def __init__(self, plan: Plan, node: NodePlan, store: KVStore, learner: Learner) -> None:
        self._plan, self._node, self._store, self._learner = plan, node, store, learner
        training = [worker for worker in plan.with_role("worker") if worker.trains]
        self._training_workers = len(training)
        self._is_master = node.name == plan.with_role("worker")[0].name
        self._is_evaluator = node.name == training[0].name

    async def run(self, world: World, membership: Membership) -> int:
        """Train to the end. Returns the number of rounds done."""
        await self._agree_on_first_values()
        rounds = 0
        if self._node.trains:
            await membership.barrier("train", self._training_workers)
            rounds = await self._train(world)
        await membership.finish()
        return rounds

    async def _agree_on_first_values(self) -> None:
        """The master worker's values become everybody's, its own included; every worker starts from equal bits."""
        await self._store.declare(self._learner.sizes)
        if self._is_master:
            for key, value in enumerate(self._learner.values()):
                await self._store.init(key, value)
        self._learner.load(await self._store.pull(range(len(self._learner.sizes))))

    async def _train(self, world: World) -> int:
        training = self._plan.training
        evaluation = None
        if self._is_evaluator:
            world.record("train", iterations=training.iterations, workers=self._training_workers)
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
        result = await world.compute(Work("step", round_), lambda: self._learner.gradient(round_))
        reached = await evaluation.before_push(round_) if evaluation else False
        last = await self._synchronise(round_, result, reached or round_ + 1 == self._plan.training.iterations)
        world.record("round", t0=started, round=round_, loss=result.loss, samples=result.samples)
        if evaluation:
            evaluation.after_round(round_)
        return last

    async def _synchronise(self, round_: int, result: StepResult, last: bool) -> bool:
        """Push every gradient, then take every new value. True when no round follows, by anybody's word."""
        for key, gradient in enumerate(result.gradients):
            await self._store.push(key, round_, gradient, last)
        values = [await self._store.value(key, round_) for key in range(len(result.gradients))]
        self._learner.load([value.tensor for value in values])
        return any(value.last for value in values)
