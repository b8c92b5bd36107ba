"""The worker: does its local work, pushes the result, takes the new values, round after round."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from torch import Tensor

from testbed.engine import sync_setup
from testbed.engine.buckets import buckets_of
from testbed.engine.checkpoint import Checkpointer, in_main_memory
from testbed.engine.collectives.inside import InsideStore
from testbed.engine.evaluation import Evaluation
from testbed.engine.guard import Guarded
from testbed.engine.handover import Handover
from testbed.engine.inbox import Mail
from testbed.engine.kvworker import KVWorker
from testbed.engine.local_work import LocalResult, LocalWork
from testbed.engine.membership import TRAIN, Membership
from testbed.engine.reply import ReplyControl, merge_controls
from testbed.engine.slicing import needs_loss, table_widths
from testbed.messages import Message, MessageKind
from testbed.plan.asynchronous import rounds_of_each
from testbed.plan.fault_clock import late_comers
from testbed.plan.model import NodePlan, Plan
from testbed.state import State, below, under
from testbed.training.learner import SegmentedLearner
from testbed.world import Work, World


class Departure:
    """Decides whether this worker leaves: after a round that the Plan names, or when its world asks it to (LEAVE).

    It leaves between two of its rounds, when every push is answered, and after a round whose aggregate crossed the
    WAN: what a data centre has only averaged inside (HFA) would be lost with its last worker. So what it has computed
    is in the model, and no other node waits for it. The scheduler makes it a new membership epoch.
    """

    def __init__(self, world: World, inbox: Mail, plan: Plan, node: NodePlan) -> None:
        self._world, self._lan_rounds = world, sync_setup.lan_rounds(plan)
        rounds = [
            fault.round for fault in plan.faults
            if fault.kind == "leave" and fault.round is not None and node.name in fault.targets
        ]  # fmt: skip
        self._after: float = min(rounds, default=math.inf)
        self._last_round = rounds_of_each(plan) - 1
        self._asked = False
        inbox.on(MessageKind.LEAVE, self._on_asked)

    def state(self) -> State:
        """Return whether it was asked to leave, where it does so after a later round."""
        return {"asked": int(self._asked)} if self._asked else {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._asked = "asked" in state

    def due(self, round_: int) -> bool:
        """Return whether ``round_``, which is over, was this worker's last. After the run's last one all end alike."""
        if round_ == self._last_round or (round_ + 1) % self._lan_rounds:
            return False
        if round_ >= self._after and not self._asked:
            self._world.record("fault", fault="leave", targets=self._world.node, begins=True)
        return self._asked or round_ >= self._after

    def _on_asked(self, message: Message) -> None:
        self._asked = True


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What a worker is made of."""

    store: KVWorker | InsideStore
    learner: SegmentedLearner
    work: LocalWork
    membership: Membership
    checkpointer: Checkpointer
    departure: Departure
    handover: Handover | None = None  # where others that join need this worker's state, as it does theirs


def _starting_workers(plan: Plan) -> int:
    if _starting_workers not in plan.memory:
        names = {worker.name for worker in plan.training_workers}
        plan.memory[_starting_workers] = len(names.difference(late_comers(plan)))
    return int(plan.memory[_starting_workers])


class Worker:
    """One worker of one data centre. ``leaves``: it has ended its part on purpose, before the run's end."""

    def __init__(self, world: World, plan: Plan, node: NodePlan, parts: WorkerParts) -> None:
        self._world, self._plan, self._node = world, plan, node
        self._store, self._learner, self._work = parts.store, parts.learner, parts.work
        self._membership, self._checkpointer, self._departure = parts.membership, parts.checkpointer, parts.departure
        self._handover = parts.handover
        if self._handover is not None:
            self._handover.provide = self._provide
        self._evaluation = Evaluation(world, plan, parts.learner)
        self._widths = table_widths(plan, parts.learner)
        self._buckets = buckets_of(plan, parts.learner.sizes, self._widths)
        self._needs_reports, self._needs_loss = sync_setup.needs_reports(plan), needs_loss(plan)
        self._declared_steps = sync_setup.local_steps(plan)
        self._assigned_steps = 0  # of every round, once a reply has named this worker
        self._rounds = rounds_of_each(plan)
        self._training_workers = _starting_workers(plan)
        self._is_master = node.name == plan.with_role("worker")[0].name
        self._notes: dict[str, object] = {}  # travel with the first key of the next push
        self._arrived: list[ReplyControl] = []  # while the steps of a later round go on (streaming)
        self.leaves = False

    async def run(self) -> int:
        joining, absent = self._membership.joined_late, self._membership.absent
        if self._checkpointer.resumed:
            await self._resume()
        else:
            await self._agree_on_first_values(joining)
        if not self._node.trains:
            return 0
        if joining:
            self._evaluation.joins((*absent, *self._membership.later))
        else:
            self._evaluation.without(absent)
        if self._checkpointer.resumed:
            await self._checkpointer.resume()
        elif not joining:
            await self._membership.barrier(TRAIN, self._training_workers)
        resumed = self._checkpointer.checkpoint
        self._evaluation.begin(self._plan.training.rounds, self._training_workers, resumed)
        before = self._store.first_control
        if joining and self._checkpointer.due(before.begin - 1) and not before.last:
            await self._checkpointer.save(before.begin - 1, self._state)  # where the others are
        return await self._train()

    async def _agree_on_first_values(self, joining: bool) -> None:
        """Take the master worker's values, as every worker does, itself included: all start from equal bits.

        A worker that joins a run in progress takes the values that the servers have.
        """
        await self._store.declare(self._buckets.sizes, widths=self._widths)
        if self._is_master and not joining:
            first = await self._buckets.joined(self._world, dict(enumerate(self._learner.values())))
            for number, value in first.items():
                await self._store.init(number, value)
        values = self._buckets.split(dict(enumerate(await self._store.pull(range(len(self._buckets.sizes))))))
        await self._work.begin(self._world, list(values.values()))
        before = self._store.first_control.begin - 1
        if self._handover is not None and before >= 0:
            self._work.load_state(await self._handover.take(before))
        # afterwards: who has given its state may have made the step of its next round, and counts that
        self._work.begin_at(sum(map(self._declared_steps, range(before + 1))))
        if self._handover is not None:
            self._handover.done(before)

    async def _provide(self) -> State:
        """Return what a worker that joins needs; as work, so that no step is changing it meanwhile."""
        work = Work("copy", size_bytes=4 * sum(self._learner.sizes))
        return await self._world.compute(work, lambda: in_main_memory(self._work.state()))

    async def _resume(self) -> None:
        state = self._checkpointer.state
        self._store.load_state(below("store", state))
        await self._store.declare(self._buckets.sizes, widths=self._widths)
        if not self._node.trains:
            return
        self._learner.load_state(below("learner", state))
        self._work.load_state(below("work", state))
        self._notes = json.loads(str(state["notes"]))
        self._assigned_steps = int(state["assigned_steps"])
        if "arrived" in state:
            self._arrived = msgspec.json.decode(state["arrived"], type=list[ReplyControl])
        self._evaluation.load_state(below("evaluation", state))
        self._departure.load_state(below("departure", state))
        if self._handover is not None:
            self._handover.done(self._checkpointer.first_round - 1)

    async def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "assigned_steps": self._assigned_steps,
            "notes": json.dumps(self._notes),
        }
        if self._arrived:
            state["arrived"] = msgspec.json.encode(self._arrived).decode()
        state |= under("learner", self._learner.state()) | under("work", self._work.state())
        state |= under("departure", self._departure.state())
        return state | under("store", self._store.state()) | under("evaluation", await self._evaluation.state())

    async def _train(self) -> int:
        first_control = self._store.first_control
        first = max(self._checkpointer.first_round, first_control.begin)
        round_ = first - 1
        while round_ + 1 < self._rounds and not first_control.last:
            round_ += 1
            control = await self._round(round_, self._assigned_steps or self._declared_steps(round_))
            self._assigned_steps = control.steps.get(self._node.name, self._assigned_steps)
            if control.last:
                break
            if self._departure.due(round_):
                self.leaves = True
                break
            if self._checkpointer.due(round_):
                await self._work.receive_pending()
                await self._checkpointer.save(round_, self._state)
        await self._score_final(round_, changed=await self._work.finish(self._world))
        return round_ + 1

    async def _score_final(self, round_: int, *, changed: bool = False) -> None:
        if not self._widths:  # else only who evaluated before its last push has asked for the whole model
            self._evaluation.without(self._membership.lost)
        await self._evaluation.finish(round_, changed=changed)

    async def _round(self, round_: int, steps: int) -> ReplyControl:
        started_s = self._world.now()
        if isinstance(self._learner, Guarded):
            self._learner.round = round_
        result = await self._work.run(self._world, round_, steps)
        worked_s = self._world.now() - started_s  # without an evaluation that is not ready yet
        self._evaluation.without(self._membership.lost)
        if await self._evaluation.before_push(round_):
            self._notes["last"] = True
        pushed_s = self._world.now()
        control = merge_controls(await self._synchronise(round_, result))
        self._report(result, worked_s, self._world.now() - pushed_s - control.waited_s)
        self._world.record(
            "round", t0=started_s, round=round_, loss=result.loss, samples=result.samples,
            steps=result.steps, waited_s=round(control.waited_s, 6),
        )  # fmt: skip
        self._evaluation.after_round(round_)
        if self._handover is not None:
            self._handover.done(round_)
        return control

    async def _synchronise(self, round_: int, result: LocalResult) -> list[ReplyControl]:
        """Push every bucket, then take every new value. The worker's notes travel with the first one.

        Return what the servers have said with the values that have come.
        """
        if self._needs_loss:
            self._notes["loss"] = result.loss
        late, contributions = self._work.is_late, await self._buckets.joined(self._world, result.contributions)
        keys = list(contributions)
        wanted = await self._wanted(round_)
        for key, tensor in contributions.items():
            notes = dict(self._notes) if key == keys[0] else None
            pushing = self._store.push(key, round_, tensor, notes, wanted=wanted.get(key))
            if late:
                self._world.spawn(pushing, f"push key {key}")  # a full queue must not hold up the next steps
            else:
                await pushing
        if not late:
            return await self._receive(round_, keys)
        arrived, self._arrived = self._arrived, []
        self._work.pending = partial(self._take_late, round_, keys)
        return arrived

    async def _receive(self, round_: int, keys: Sequence[int]) -> list[ReplyControl]:
        values = [await self._store.value(key, round_) for key in keys]
        tensors = {key: value.tensor for key, value in zip(keys, values, strict=True)}
        await self._work.take(self._world, round_, self._buckets.split(tensors))
        return [value.control for value in values]

    async def _take_late(self, round_: int, keys: Sequence[int]) -> None:
        self._arrived += await self._receive(round_, keys)

    async def _wanted(self, round_: int) -> Mapping[int, Tensor]:
        """Return the rows of tables that the batch after ``round_`` needs; tables that are not named come whole."""
        if not self._widths or self._evaluation.needs_model(round_):
            return {}
        return await self._world.compute(Work("copy", round_), lambda: self._learner.rows(round_ + 1))

    def final_values(self) -> list[Tensor]:
        """Return the values that this worker ends with; none if it holds rows of different rounds."""
        return [] if self._widths and not self._evaluation.active else self._learner.values()

    def _report(self, result: LocalResult, work_s: float, transfer_s: float) -> None:
        """Note for the next push how long a step and a transfer took here, in seconds (ESync)."""
        if self._needs_reports:
            report = (round(work_s / result.steps, 6), round(max(0.0, transfer_s), 6))
            self._notes["reports"] = {self._node.name: report}
