"""Workers with parameter servers: they push the contributions of their local work, and take the new values."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import torch
from torch import Tensor

from testbed.engine import sync_setup
from testbed.engine.attack import Attacks
from testbed.engine.buckets import buckets_of
from testbed.engine.checkpoint import in_main_memory
from testbed.engine.collectives.inside import InsideStore
from testbed.engine.evaluation import Evaluation
from testbed.engine.exchange import Exchange, FinalScore, RoundDone
from testbed.engine.keys import KeyPush, declared
from testbed.engine.kvworker import KVWorker
from testbed.engine.lagging import Arrivals
from testbed.engine.local_work import LocalResult, LocalWork
from testbed.engine.membership import TRAIN, Membership
from testbed.engine.peers import Peers
from testbed.engine.reply import ReplyControl, merge_controls
from testbed.engine.slicing import needs_loss, shapes_to_declare, table_widths
from testbed.engine.summed_store import SummedStore
from testbed.plan.asynchronous import rounds_of_each
from testbed.plan.model import NodePlan, Plan
from testbed.state import State, below, joined
from testbed.training.learner import SegmentedLearner
from testbed.world import Work, World


@dataclass(frozen=True, slots=True)
class ServerParts:
    """The parts with which a worker exchanges with servers.

    has_state  whether a joining worker needs another worker's state, because servers do not hold the whole state
    """

    store: KVWorker | InsideStore | SummedStore
    learner: SegmentedLearner
    work: LocalWork
    evaluation: Evaluation
    membership: Membership
    peers: Peers
    has_state: bool = False


class ServerExchange(Exchange):
    """Pushes all contributions, then takes all new values; late values (streaming, lagging) in later local work."""

    def __init__(self, world: World, plan: Plan, node: NodePlan, parts: ServerParts) -> None:
        self._world = world
        self._plan = plan
        self._node = node
        self._store = parts.store
        self._learner = parts.learner
        self._work = parts.work
        self.evaluation = parts.evaluation
        self._membership = parts.membership
        self._peers = parts.peers
        self._has_state = parts.has_state
        if self._has_state:
            self._peers.states.provide = self._provide
        self._attacks = Attacks(world, plan, node)
        self._widths = table_widths(plan, parts.learner)
        self._buckets = buckets_of(plan, parts.learner.sizes, self._widths)
        self._shapes = shapes_to_declare(plan, parts.learner.shapes)
        self._moments = sync_setup.moments(plan)
        self._needs_reports = sync_setup.needs_reports(plan)
        self._needs_loss = needs_loss(plan)
        self._weighs_tokens = sync_setup.weighs_tokens(plan)
        self._declared_steps = sync_setup.local_steps(plan)
        self._assigned_steps = 0  # local steps per round; 0 until a reply assigns steps to this worker
        self._is_master = node.name == plan.with_role("worker")[0].name
        self._notes: dict[str, object] = {}  # notes for the first key of the next push
        self._arrived: list[ReplyControl] = []  # controls that came during a later round (streaming, or lagging)
        self._arrivals = Arrivals()  # durations of rounds whose values come late
        self.workers = plan.first_workers
        self.end: float = rounds_of_each(plan)

    async def begin(self, state: State | None, after: int) -> None:
        if state is not None:
            await self._resume(state, after)
        else:
            await self._agree_on_first_values(self._membership.joined_late)
        if self._store.first_control.last:
            self.end = 0

    async def meet(self, resume: Callable[[], Awaitable[None]] | None) -> int:
        self._choose_who_evaluates()
        if resume is not None:
            await resume()
        elif not self._membership.joined_late:
            await self._membership.barrier(TRAIN, self.workers)
        return self._peers.first_round(self._world.node)

    async def _agree_on_first_values(self, joining: bool) -> None:
        """Take first values from the servers. The master worker sets them, and also pulls them, so all bits are equal.

        A worker that joins a run in progress takes the servers' current values.
        """
        await self._declare()
        if self._is_master and not joining:
            first = await self._buckets.joined(self._world, dict(enumerate(self._learner.values())))
            for number, value in first.items():
                await self._store.init(number, value)
            for number, size in list(enumerate(self._sizes))[len(first) :]:
                await self._store.init(number, torch.zeros(size), {"mean": True})
        values = self._buckets.split(dict(enumerate(await self._store.pull(range(len(self._buckets.sizes))))))
        await self._work.begin(self._world, list(values.values()))
        before = self._peers.first_round(self._world.node) - 1
        if self._has_state and before >= 0:
            self._work.load_state(await self._peers.state_after(before))
        # after loading the state: its giver may already have counted a step of its next round
        self._work.begin_at(sum(map(self._declared_steps, range(before + 1))))
        self._peers.states.done(before)

    @property
    def _sizes(self) -> tuple[int, ...]:
        """The elements of each key: the model's buckets, then the same sizes again for each averaged moment."""
        return self._buckets.sizes * (1 + len(self._moments))

    async def _declare(self) -> None:
        await self._store.declare(declared(self._sizes, self._widths, self._shapes))

    async def _provide(self) -> State:
        """Return the state that a joining worker needs. It is copied as work, so that no step changes it meanwhile."""
        work = Work("copy", size_bytes=4 * sum(self._learner.sizes))
        return await self._world.compute(work, lambda: in_main_memory(self._work.state()))

    async def _resume(self, state: State, after: int) -> None:
        self._peers.begun(after)
        self._store.load_state(below("store", state))
        await self._declare()
        if not self._node.trains:
            return
        self._work.load_state(below("work", state))
        self._attacks.load_state(below("attacks", state))
        self._arrivals.load_state(below("arrivals", state))
        self._notes = json.loads(str(state["notes"]))
        self._assigned_steps = int(state["assigned_steps"])
        if "arrived" in state:
            self._arrived = msgspec.json.decode(state["arrived"], type=list[ReplyControl])
        self._peers.states.done(after)

    def state(self) -> State:
        state: State = {
            "assigned_steps": self._assigned_steps,
            "notes": json.dumps(self._notes),
        }
        if self._arrived:
            state["arrived"] = msgspec.json.encode(self._arrived).decode()
        parts = {"work": self._work, "attacks": self._attacks, "store": self._store, "arrivals": self._arrivals}
        return state | joined(parts)

    async def settle(self) -> None:
        await self._work.receive_pending()

    async def run(self, round_: int, over: Callable[[RoundDone], None]) -> None:
        started_s = self._world.now()
        await self._work.catch_up(self._world)
        began_s = self._world.now()
        result = await self._work.run(self._world, round_, self._assigned_steps or self._declared_steps(round_))
        worked_s = self._world.now() - began_s  # without the wait for an evaluation
        await self._note_target(round_)
        pushed_s = self._world.now()
        control = merge_controls(await self._synchronise(round_, result))
        self._report(worked_s / result.steps, self._world.now() - pushed_s - control.waited_s)
        self._assigned_steps = control.steps.get(self._node.name, self._assigned_steps)
        if control.pace is not None:
            self._work.staleness = int(control.pace[0])
        if control.last:
            self.end = round_ + 1
        over(RoundDone(round_, started_s, result, control.waited_s))
        self._peers.states.done(round_)

    async def _note_target(self, round_: int) -> None:
        """If the target has been reached, note for the next push that the run ends."""
        self._choose_who_evaluates()
        if await self.evaluation.before_push(round_):
            self._notes["last"] = True

    def _choose_who_evaluates(self) -> None:
        if self._peers.continues:
            self.evaluation.done_by(self._peers.eldest)

    async def finish(self, rounds: int) -> FinalScore:
        changed = await self._work.finish(self._world)
        if not self._widths:  # else only the worker that evaluated before its last push has the whole model
            self._choose_who_evaluates()
        return FinalScore(rounds - 1, changed)

    async def _synchronise(self, round_: int, result: LocalResult) -> list[ReplyControl]:
        """Push every bucket, the first one with the worker's notes. Then take the new values, unless they come late.

        Return the controls that came with values since the last call.
        """
        if self._needs_loss:
            self._notes["loss"] = result.loss
        late = self._work.is_late
        pushed_s = self._world.now()
        pushed = await self._attacks.changed(round_, result.contributions)
        contributions = await self._buckets.joined(self._world, pushed)
        keys = list(contributions)
        wanted = await self._wanted(round_)
        trained = {"trained": [result.samples, result.steps]} if self._weighs_tokens else {}
        for key, tensor in contributions.items():
            notes = {**trained, **(self._notes if key == keys[0] else {})}
            pushing = self._store.push(KeyPush(key, round_, tensor, notes, wanted=wanted.get(key)))
            if late:
                self._world.spawn(pushing, f"push key {key}")  # a full queue must not hold up the next steps
            else:
                await pushing
        due = [which for which, period in self._moments.items() if (round_ + 1) % period == 0]
        for which in due:
            await self._push_moments(which, round_, trained)
        if not late:
            controls = await self._receive(round_, keys, pushed_s)
            for which in due:
                await self._take_moments(which, round_)
            return controls
        arrived, self._arrived = self._arrived, []
        self._work.pending.append(partial(self._take_late, round_, keys, pushed_s))
        return arrived

    async def _receive(self, round_: int, keys: Sequence[int], pushed_s: float) -> list[ReplyControl]:
        values = [await self._store.value(key, round_) for key in keys]
        tensors = {key: value.tensor for key, value in zip(keys, values, strict=True)}
        await self._work.take(self._world, round_, self._buckets.split(tensors))
        if self._work.is_late and self._needs_reports:
            self._arrivals.note(pushed_s, values)
        return [value.control for value in values]

    def _first_key_of(self, which: str) -> int:
        return (1 + list(self._moments).index(which)) * len(self._buckets.sizes)

    async def _push_moments(self, which: str, round_: int, notes: Mapping[str, object]) -> None:
        first = self._first_key_of(which)
        size_bytes = 4 * sum(self._buckets.sizes)
        copying = Work("copy", round_, size_bytes=size_bytes)
        mine = await self._world.compute(copying, lambda: self._work.moments(which))
        for number, tensor in (await self._buckets.joined(self._world, mine)).items():
            await self._store.push(KeyPush(first + number, round_, tensor, notes))

    async def _take_moments(self, which: str, round_: int) -> None:
        first = self._first_key_of(which)
        means = {
            number: (await self._store.value(first + number, round_)).tensor
            for number in range(len(self._buckets.sizes))
        }
        copying = Work("copy", round_, size_bytes=4 * sum(self._buckets.sizes))
        await self._world.compute(copying, lambda: self._work.take_moments(which, self._buckets.split(means)))

    async def _take_late(self, round_: int, keys: Sequence[int], pushed_s: float) -> None:
        self._arrived += await self._receive(round_, keys, pushed_s)

    async def _wanted(self, round_: int) -> Mapping[int, Tensor]:
        """Return, by table, the rows that the batch after ``round_`` needs; other tables are pulled whole."""
        if not self._widths or self.evaluation.needs_model(round_):
            return {}
        return await self._world.compute(Work("copy", round_), lambda: self._learner.rows(round_ + 1))

    def final_values(self) -> list[Tensor]:
        """Return this worker's final values; none if its table rows come from different rounds."""
        return [] if self._widths and not self.evaluation.active else self._learner.values()

    def _report(self, step_s: float, transfer_s: float) -> None:
        """Note for the next push how many seconds a step and a transfer took at this worker."""
        took = self._arrivals.took if self._work.is_late else (transfer_s,)
        if self._needs_reports and took:
            report = tuple(round(max(0.0, each), 6) for each in (step_s, *took))
            self._notes["reports"] = {self._node.name: report}
