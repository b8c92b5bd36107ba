"""The top tier where workers do not wait for each other: it counts their rounds, ends the run, and scores the model.

No worker knows how far the others are, or has the newest values. So the global servers do what workers do where all
wait for all:

* ``SharedRounds``: all workers together make ``training.rounds`` rounds for each of them. Every reply to a key of the
  first global server begins a round of those to whom it goes, until all have begun; the replies after that are the
  last. So the rounds that were begun are finished, and there are exactly as many as were asked for.
* ``GlobalModel``: as often as all workers have made ``evaluate_every`` rounds on the mean, the first global server
  scores the values that all keys have after just so many rounds, outside the timed path. The others send it theirs
  inside the data centre. When all workers have ended, it scores the final values.
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

_FINAL = -1  # the round of final values


class SharedRounds(Remembering):
    """``rounds`` for each worker below ``members``, of which whoever is ready begins the next one.

    ``each``: how many rounds of workers a member's push stands for. A data centre whose workers wait for each other
    pushes their sum, and that of those who are left stands for them all.

    ``ahead``: how many rounds workers begin before the answer to the one before them.
    """

    remembers = ("_left", "_begun")

    def __init__(self, rounds: int, members: Sequence[Member], ahead: int = 0) -> None:
        workers = {member.name: max(1, len(member.workers)) for member in members}
        self.each = {member.name: member.worker_rounds for member in members}
        self._first = {name: count * min(1 + ahead, rounds) for name, count in workers.items()}
        self.workers = sum(workers.values())
        self._left: float = rounds * self.workers
        self._begun = dict.fromkeys(workers, 0)  # and not made yet

    def begin(self, member: str, first: bool) -> bool:
        """Return whether a member begins a round. ``first``: it is its first ones, of all its workers at once.

        The last round of a data centre begins if at least half of its workers' rounds are left.
        """
        if member not in self.each:
            return True  # it has no training worker, and asks for first values
        count = self._first[member] if first else self.each[member]
        if self._left <= 0 or 2 * self._left < min(count, self.each[member]):
            self.close()
            return False
        self._begun[member] += count
        self._left -= count
        return True

    def made(self, member: str) -> None:
        """Note that a push of ``member`` has come, so that its round is made."""
        self._begun[member] = max(0, self._begun[member] - self.each[member])

    def lost(self, member: str) -> None:
        """Let others begin what ``member``, which is lost, has begun; but none once a worker has been told the end."""
        if member in self._begun and self._left > -math.inf:
            self._left += self._begun[member]
            self._begun[member] = 0

    def close(self) -> None:
        """Let no round begin any more."""
        self._left = -math.inf


def slices_of_hops(plan: Plan, declaration: Declaration) -> list[tuple[Slice, ...]]:
    """Return how the keys of a worker are cut at each hop from it to the global servers, in that order.

    A local server cuts what it receives once more, as there may be several global servers.
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
    """Return the tensors whose ``slices`` have ``values``, by wire key."""
    pieces: dict[int, list[Tensor]] = {}
    for piece in slices:
        pieces.setdefault(piece.key, []).append(values[piece.wire_key])
    return {key: each[0] if len(each) == 1 else torch.cat(each) for key, each in pieces.items()}


class GlobalModel:
    """The model that lives at all global servers, scored at the first one of them.

    scores  what a checkpoint keeps: no key of a model is missing then, as all workers have made the same rounds
    """

    def __init__(self, world: World, plan: Plan, learner: SegmentedLearner) -> None:
        self._world = world
        self._learner = learner
        self._local_steps = sync_setup.local_steps(plan)
        widths = table_widths(plan, learner)
        self._buckets = buckets_of(plan, learner.sizes, widths)
        self._hops = slices_of_hops(plan, declared(self._buckets.sizes, widths))
        self.scores = Scores(world, learner.evaluate, plan.training.target)
        self._values: dict[int, dict[int, Tensor]] = {}  # by round and wire key, of models that are not complete
        self._turn: Future[None] | None = None  # of the last model that has come, set when it is being scored
        self._final: Future[Mapping[int, Tensor]] = world.future()

    @property
    def reached(self) -> bool:
        """Whether the target has been reached."""
        return self.scores.reached

    async def take(self, round_: int, wire_key: int, value: Tensor) -> None:
        """Take a key's value after ``round_`` (``_FINAL``: at the end). Score the model when it has all its keys.

        The score before is due then, and this waits for it.
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
        """Score the final values, those after ``round_``, which are of ``changed_s``; unless they are being scored.

        ``changed``: since the model was scored last.
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

    model  where values are scored; ``None``: at the first global server
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
        self._first_key = -1  # whose replies begin rounds: keys of other servers have none
        self._fragments = streaming.fragments if streaming else 1  # each with keys of its own, and rounds in turns
        self._leads: dict[int, int] = {}  # by fragment: the key whose replies begin rounds
        self._counted: dict[int, int] = {}  # by key: rounds of workers whose contributions are in its value
        self._changed_s = 0.0  # when the last value changed
        self._scored_at = 0  # rounds of workers that the first key's value had when it was scored last
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
        self._changed_s = round(self._world.now(), 6)  # as times are recorded
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
        """Return whether ``key`` is the one of those of a round that stands for all of them."""
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
