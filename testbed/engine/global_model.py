"""The top tier if workers do not wait for each other: it counts their rounds, ends the run, and scores the model.

No worker knows how far the others are, or has the newest values. So the global servers take over two tasks of workers:

* ``SharedRounds``: all workers together make ``training.rounds`` rounds times their number. Each reply to the first key
  of the first global server begins a round of the receiving member, until all rounds have begun; each later reply is
  the last for its member. So all begun rounds are finished, and their number is exactly the number in the Plan.
* ``GlobalModel``: each time the workers have made another ``evaluate_every`` rounds on average, the first global server
  scores the values that each key has after that many rounds, outside the timed path. The other global servers send it
  their values inside the data centre. When all workers have ended, it scores the final values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from testbed.engine import coding, sync_setup
from testbed.engine.aggregation import AggregatedPush
from testbed.engine.aggregation_weights import summed_workers
from testbed.engine.buckets import buckets_of
from testbed.engine.evaluation import Scores
from testbed.engine.keys import Declaration, declared
from testbed.engine.reply import PULL_ROUND, Value
from testbed.engine.root_store import ParameterState, RootStore
from testbed.engine.slicing import cut, slicer_of, table_widths
from testbed.errors import ScenarioError
from testbed.messages import Message, MessageKind
from testbed.placing import place_of
from testbed.plan.model import NodePlan, Plan
from testbed.policy.shard.slices import Slice
from testbed.policy.sync.base import Member
from testbed.results.events import EVALUATING
from testbed.state import Remembering, State, below, under
from testbed.training.learner import SegmentedLearner
from testbed.world import Future, World

_FINAL = -1  # stands for the round of the final values


class SharedRounds(Remembering):
    """A pool of ``rounds`` rounds for each worker below ``members``; any member that is ready begins the next round.

    each   by member: the number of workers' rounds that one push stands for. A data centre whose workers wait for each
           other pushes their sum; if some workers are lost, the sum of the others still stands for all
    ahead  the number of further rounds that workers begin before the reply to a round
    """

    remembers = ("_left", "_begun")

    def __init__(self, rounds: int, members: Sequence[Member], ahead: int = 0) -> None:
        workers = {member.name: max(1, len(member.workers)) for member in members}
        self.each = {member.name: member.worker_rounds for member in members}
        self._first = {name: count * min(1 + ahead, rounds) for name, count in workers.items()}
        self.workers = sum(workers.values())
        self._left: float = rounds * self.workers
        self._begun = dict.fromkeys(workers, 0)  # rounds that have begun and are not made yet

    def begin(self, member: str, first: bool) -> bool:
        """Return whether ``member`` begins a round. ``first``: all its workers begin their first rounds at once.

        A data centre's last round begins if the rounds left are at least half of those that its round counts for.
        """
        if member not in self.each:
            return True  # the member has no training worker, and asks for first values
        count = self._first[member] if first else self.each[member]
        if self._left <= 0 or 2 * self._left < min(count, self.each[member]):
            self.close()
            return False
        self._begun[member] += count
        self._left -= count
        return True

    def made(self, member: str) -> None:
        """Note that a push of ``member`` has come, which completes its round."""
        self._begun[member] = max(0, self._begun[member] - self.each[member])

    def lost(self, member: str) -> None:
        """Give the rounds in progress of the lost ``member`` to others, unless a worker has been told that it ends."""
        if member in self._begun and self._left > -math.inf:
            self._left += self._begun[member]
            self._begun[member] = 0

    def close(self) -> None:
        """Let no further round begin."""
        self._left = -math.inf


def slices_of_hops(plan: Plan, declaration: Declaration) -> list[tuple[Slice, ...]]:
    """Return the slices of a worker's keys at each hop, from the worker to the global servers.

    A local server cuts the slices that it receives again, as there may be several global servers.
    """
    hops: list[tuple[Slice, ...]] = []
    parents = next(worker.parents for worker in plan.training_workers if worker.parents)
    while parents:
        slices = cut(slicer_of(plan), declaration, len(parents))
        hops.append(slices)
        declaration = declaration.of_slices(slices)
        parents = plan.node(parents[0]).parents
    return hops


def _joined(slices: Sequence[Slice], values: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """Join ``values``, given by wire key, to whole tensors by key."""
    pieces: dict[int, list[Tensor]] = {}
    for piece in slices:
        pieces.setdefault(piece.key, []).append(values[piece.wire_key])
    return {key: each[0] if len(each) == 1 else torch.cat(each) for key, each in pieces.items()}


class GlobalModel:
    """The model whose keys are spread over all global servers; the first global server scores it.

    scores  the scores, for a checkpoint; no incomplete model needs to be kept, as all workers have made the same rounds
    """

    def __init__(self, world: World, plan: Plan, learner: SegmentedLearner) -> None:
        self._world = world
        self._learner = learner
        self._local_steps = sync_setup.local_steps(plan)
        widths = table_widths(plan, learner)
        self._buckets = buckets_of(plan, learner.sizes, widths)
        self._hops = slices_of_hops(plan, declared(self._buckets.sizes, widths))
        self.scores = Scores(world, learner.evaluate, plan.training.target)
        self._values: dict[int, dict[int, Tensor]] = {}  # by round and wire key: values of incomplete models
        self._turn: Future[None] | None = None  # set when the scoring of the newest complete model begins
        self._final: Future[Mapping[int, Tensor]] = world.future()

    @property
    def reached(self) -> bool:
        """Whether the target has been reached."""
        return self.scores.reached

    async def take(self, round_: int, wire_key: int, value: Tensor) -> None:
        """Take a key's value after ``round_`` (``_FINAL``: at the end). Score the model once it has all its keys.

        This waits for the score of the model before.
        """
        values = self._values.setdefault(round_, {})
        values[wire_key] = value
        if len(values) == len(self._hops[-1]):
            del self._values[round_]
            if round_ == _FINAL:
                self._final.set_result(values)
            else:
                await self._score(round_, values, round(self._world.now(), 6))

    async def finish(self, round_: int, changed_s: float, changed: bool) -> None:
        """Score the final values, unless they are already being scored.

        round_     the round after which they are
        changed_s  when they changed last
        changed    whether they have changed since the model was last scored
        """
        values = await self._world.wait(self._final, "the final values of all global servers")
        if changed or self.scores.round is None:
            await self._score(round_, values, changed_s)
        await self.scores.collect()

    async def _score(self, round_: int, values: Mapping[int, Tensor], time_s: float) -> None:
        before = self._turn
        mine = self._world.future()
        self._turn = mine
        if before is not None:  # a third model may come while the second one waits for the score of the first
            await self._world.wait(before, EVALUATING)
        await self.scores.collect()
        for slices in reversed(self._hops):
            values = _joined(slices, values)
        whole = self._buckets.split(values)
        tensors = [whole[key] for key in sorted(whole)]
        self.scores.take(round_, self._learner.epoch_of(self._steps(round_)), tensors, time_s)
        mine.set_result(None)

    def _steps(self, round_: int) -> int:
        """Return the number of a worker's last step in ``round_``."""
        return sum(map(self._local_steps, range(round_ + 1))) - 1


class AsynchronousRootStore(RootStore):
    """The store of a global server whose members do not wait for each other.

    model  scores the values, at the first global server; ``None`` at the others, which send it their values
    """

    def __init__(
        self,
        world: World,
        plan: Plan,
        node: NodePlan,
        make_state: Callable[[Tensor], ParameterState],
        model: GlobalModel | None,
    ) -> None:
        super().__init__(world, make_state, place_of(plan, node), workers=summed_workers(plan, node))
        self._every = plan.training.evaluate_every
        self._first = plan.with_role("global_server")[0].name
        streaming = sync_setup.streaming(plan)
        ahead = int(streaming is not None and streaming.overlap_steps > 0)
        self._rounds = SharedRounds(plan.training.rounds, sync_setup.tier_of(plan, node).members, ahead)
        self._model = model
        self._first_key = -1  # the key whose replies begin rounds; -1 at all but the first global server
        self._fragments = streaming.fragments if streaming else 1  # fragments have separate keys, and take turns
        self._leads: dict[int, int] = {}  # by fragment: the key whose replies begin rounds
        self._counted: dict[int, int] = {}  # by key: number of workers' rounds whose contributions are in its value
        self._changed_s = 0.0  # when the last value changed
        self._scored_at = 0  # ``_counted`` of the first key when the model was last scored
        self._asked_for = plan.training.rounds
        self._scores: State = {}  # of the model, for a checkpoint

    async def declare(self, declaration: Declaration) -> None:
        if self._model is None:
            return
        if not declaration.keys:
            raise ScenarioError("shard: no key is on the first global server, which counts the rounds of all workers")
        self._first_key = min(declaration.keys)

    async def apply(self, total: AggregatedPush) -> Value:
        value = await super().apply(total)
        key = total.key
        before = self._counted.get(key, 0)
        mine = sum(self._rounds.each[member] for member in total.members)
        made = self._counted[key] = before + mine * self._fragments
        self._changed_s = round(self._world.now(), 6)  # rounded like recorded times
        if self._leads_round(key, total.round):
            for member in total.members:
                self._rounds.made(member)
        due = self._every * self._rounds.workers
        if made // due > before // due:
            if key == self._first_key:
                self._scored_at = made
            await self._take(made // due * self._every - 1, key, value.tensor)
        return value

    def _leads_round(self, key: int, round_: int) -> bool:
        """Return whether ``key`` is the key that counts for all keys of a round."""
        if self._first_key < 0 or self._fragments == 1 or round_ == PULL_ROUND:
            return key == self._first_key
        return self._leads.setdefault(round_ % self._fragments, key) == key

    def on_snapshot(self, message: Message) -> None:
        """Take a value that another global server has sent."""
        self._world.spawn(self._take(message.round, message.key, message.parts[0]), "score")

    async def _take(self, round_: int, key: int, value: Tensor) -> None:
        if self._model is None:
            part = await coding.exact(self._world, value)
            await self._world.send(self._first, Message(MessageKind.SNAPSHOT, key, round_, parts=(part,)))
            return
        await self._model.take(round_, key, value)
        if self._model.reached:
            self._rounds.close()

    def on_value_sent(self, key: int, value: Tensor, member: str, round_: int) -> bool:
        super().on_value_sent(key, value, member, round_)
        return not self._leads_round(key, round_) or self._rounds.begin(member, first=round_ == PULL_ROUND)

    def on_members_lost(self, nodes: Sequence[str]) -> None:
        for node in nodes:
            self._rounds.lost(node)

    async def finish(self) -> None:
        """Score the final values: all workers have ended."""
        for key in sorted(self._keys):
            await self._take(_FINAL, key, self._keys[key].value)
        if self._model is not None and self._counted:
            made = self._counted[self._first_key]
            rounds = min(math.ceil(made / self._rounds.workers), self._asked_for)
            await self._model.finish(rounds - 1, self._changed_s, made != self._scored_at)

    async def settle(self) -> None:
        if self._model is not None:
            self._scores = await self._model.scores.state()

    def state(self) -> State:
        made = under("made", {str(key): made for key, made in self._counted.items()})
        counted = under("rounds", self._rounds.state()) | under("scores", self._scores)
        return super().state() | made | counted | {"changed_s": self._changed_s, "scored_at": self._scored_at}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._counted = {int(key): int(made) for key, made in below("made", state).items()}
        self._rounds.load_state(below("rounds", state))
        self._changed_s = float(state["changed_s"])
        self._scored_at = int(state["scored_at"])
        if self._model is not None:
            self._model.scores.load_state(below("scores", state))
