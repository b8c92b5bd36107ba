"""The worker: works locally, pushes what came of it, takes the new values, round after round."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from testbed.engine import technique
from testbed.engine.checkpoint import Checkpointer, as_text, below, under
from testbed.engine.departure import Departure
from testbed.engine.dgt import tells_loss
from testbed.engine.evaluation import Evaluation
from testbed.engine.guard import Guarded
from testbed.engine.kvworker import KVWorker, Value, merged
from testbed.engine.loading.trainer import finish_loading
from testbed.engine.local_work import LocalResult, LocalWork
from testbed.engine.membership import Membership
from testbed.plan.fault_clock import late_comers
from testbed.plan.model import NodePlan, Plan
from testbed.training.learner import SegmentedLearner
from testbed.world import World


class Worker:
    """One worker of one data centre."""

    def __init__(self, plan: Plan, node: NodePlan, store: KVWorker, learner: SegmentedLearner, work: LocalWork) -> None:
        self._plan, self._node, self._store, self._learner, self._work = plan, node, store, learner, work
        self._reports = technique.needs_reports(plan)
        self._declared_steps = technique.local_steps(plan)
        self._assigned_steps = 0  # of every round, once a reply has named this worker
        training = plan.training_workers
        self._training_workers = len({worker.name for worker in training}.difference(late_comers(plan)))
        self._is_master = node.name == plan.with_role("worker")[0].name
        self._is_evaluator = node.name == training[0].name
        self._tells_loss = tells_loss(plan)
        self._guard = learner if isinstance(learner, Guarded) else None
        self._notes: dict[str, object] = {}
        self.keeper: Checkpointer | None = None
        self.departure: Departure | None = None
        self._leaves = False

    async def run(self, world: World, membership: Membership) -> int:
        """Train to the end. Return the number of rounds done."""
        if self.keeper and self.keeper.resumed:
            await self._resume(world, self.keeper)
        else:
            await self._agree_on_first_values(joining=membership.again)
            self._work.steps = sum(map(self._declared_steps, range(self._store.first.begin)))
        rounds = 0
        if self._node.trains:
            if not membership.again:
                await membership.barrier("train", self._training_workers, self._first_values_s())
            rounds = await self._train(world)
            await finish_loading(self._learner)
        await (membership.depart() if self._leaves else membership.finish())
        return rounds

    def _first_values_s(self) -> float:
        """How long others may take to get their first values: among many, longer than to meet."""
        timeouts = self._plan.timeouts
        return max(timeouts.rendezvous_s, timeouts.step_deadline_s)

    async def _agree_on_first_values(self, joining: bool) -> None:
        """The master worker's values become everybody's, its own included; every worker starts from equal bits.

        Who joins a run under way takes the values that are there.
        """
        await self._store.declare(self._learner.sizes)
        if self._is_master and not joining:
            for key, value in enumerate(self._learner.values()):
                await self._store.init(key, value)
        self._work.begin(await self._store.pull(range(len(self._learner.sizes))))

    async def _resume(self, world: World, keeper: Checkpointer) -> None:
        """Go on where the checkpoint was made."""
        await self._store.declare(self._learner.sizes)
        if not self._node.trains:
            return
        state = keeper.state
        self._learner.load_state(below("learner", state))
        self._work.load_state(below("work", state))
        self._store.load_state(below("store", state))
        self._notes = json.loads(str(state["notes"]))
        world.pacer.skip_to(float(state["paced"]))
        self._assigned_steps = int(state["assigned_steps"])

    async def _state(self, world: World, evaluation: Evaluation | None) -> dict[str, Any]:
        state: dict[str, Any] = {
            "assigned_steps": self._assigned_steps,
            "notes": as_text(self._notes),
            "paced": world.pacer.steps_done,
        }
        state |= under("learner", self._learner.state()) | under("work", self._work.state())
        state |= under("store", self._store.state())
        return state | (under("evaluation", await evaluation.state()) if evaluation else {})

    async def _train(self, world: World) -> int:
        evaluation, keeper = self._begin_training(world), self.keeper
        first = max(keeper.first_round if keeper else 0, self._store.first.begin)
        round_ = first - 1
        for round_ in range(first, 0 if self._store.first.last else self._plan.training.rounds):
            steps = self._assigned_steps or self._declared_steps(round_)
            values = await self._round(world, round_, steps, evaluation)
            advice = merged([value.advice for value in values])
            self._assigned_steps = advice.steps.get(self._node.name, self._assigned_steps)
            if advice.last:
                break
            if self.departure and self.departure.due(round_):
                self._leaves = True
                break
            if keeper and keeper.due(round_):
                await keeper.save(round_, partial(self._state, world, evaluation))
        if evaluation:
            await evaluation.finish(round_)
        return round_ + 1

    def _begin_training(self, world: World) -> Evaluation | None:
        training = self._plan.training
        if not self._is_evaluator:
            return None
        world.record("train", rounds=training.rounds, workers=self._training_workers)
        evaluation = Evaluation(world, self._learner, training.evaluate_every, training.target_accuracy)
        if self.keeper and self.keeper.resumed:
            evaluation.load_state(below("evaluation", self.keeper.state))
        return evaluation

    async def _round(self, world: World, round_: int, steps: int, evaluation: Evaluation | None) -> list[Value]:
        started_s = world.now()
        if self._guard:
            self._guard.round = round_
        outcome = await self._work.run(world, round_, steps)
        if evaluation and await evaluation.before_push(round_):
            self._notes["last"] = True
        pushed_s = world.now()
        values = await self._synchronise(round_, outcome)
        waited_s = max(value.advice.waited_s for value in values)
        self._report(outcome, pushed_s - started_s, world.now() - pushed_s - waited_s)
        world.record(
            "round", t0=started_s, round=round_, loss=outcome.loss, samples=outcome.samples,
            steps=outcome.steps, waited_s=round(waited_s, 6),
        )  # fmt: skip
        if evaluation:
            evaluation.after_round(round_)
        return values

    async def _synchronise(self, round_: int, outcome: LocalResult) -> list[Value]:
        """Push every key, then take every new value. What the worker has to say goes with the first key."""
        if self._tells_loss:
            self._notes["loss"] = outcome.loss
        for key, tensor in enumerate(outcome.contributions):
            await self._store.push(key, round_, tensor, self._notes if key == 0 else None)
        values = [await self._store.value(key, round_) for key in range(len(outcome.contributions))]
        self._work.take([value.tensor for value in values])
        return values

    def _report(self, outcome: LocalResult, work_s: float, transfer_s: float) -> None:
        """For the next push: what a step and a transfer take here (ESync)."""
        if self._reports:
            report = (round(work_s / outcome.steps, 6), round(max(0.0, transfer_s), 6))
            self._notes["reports"] = {self._node.name: report}
