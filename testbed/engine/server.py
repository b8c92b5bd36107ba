"""The server of one tier: collects the pushes of its children, and does what the synchronisation policy decides.

A local server and a global server are this same role with another upstream. One round of a key:

1. The server decodes each child's PUSH and keeps it (``Contributions``). It tells the policy, which may return effects.
2. ``Aggregate``: the server sums the members' contributions in rank order, or combines them by another aggregation
   rule. It passes the sum to the upstream, which answers with the key's new value. With ``up=False`` (a round inside
   the data centre) the sum itself is the new value.
3. ``Reply``: the server sends the value to members, through each member's own codec, with the priority of the pushes.

One task per push carries out the effects of that push in order, so a reply sends the value of the preceding aggregate
or a newer value. Tasks of different keys may overlap. If rounds wait for all members, two rounds of one key cannot
overlap: children send the pushes of the next round only after the replies of this one. If rounds do not wait, each task
names its own member and round, and any order of the updates is a valid asynchronous order. In virtual time the order is
always the same.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor

from testbed import buffers
from testbed.aggregation.base import AggregationRule
from testbed.codec.base import NOTHING, Codec
from testbed.codec.rows import TableCodec, asked_by
from testbed.costs import DECODE
from testbed.engine import coding
from testbed.engine.aggregation import (
    AggregatedPush,
    Contributions,
    PendingPush,
    merge_notes,
    rounds_of,
    sum_in_order,
    tokens_weight,
)
from testbed.engine.combining import Combining
from testbed.engine.inbox import Mail
from testbed.engine.keys import DeclaredKey, declaration_of
from testbed.engine.kvworker import CodecMaker, Send
from testbed.engine.peers import Agreed, Peers
from testbed.engine.reply import PULL_ROUND, ReplyControl, Value
from testbed.engine.upstream import Upstream
from testbed.errors import RunFailed
from testbed.messages import Message, MessageKind
from testbed.policy.events import Aggregate, Alarm, Discard, Effect, Push, Reply, WorkerReport
from testbed.policy.sync.base import SyncPolicy
from testbed.state import State, below, under
from testbed.world import Future, Work, World


@dataclass(frozen=True, slots=True)
class ServerMembers:
    """Who may contribute to the rounds of a server.

    weights       the weight of each member
    peers         all nodes of the run
    first_rounds  returns the first round of each member that takes part
    rounds_apart  the server has one round for every ``rounds_apart`` rounds of a worker
    rule          the aggregation rule; ``None``: the server sums the contributions
    by_tokens     whether each contribution is also weighted by the samples and steps of its round (``tokens_weight``)
    averages      whether the sum is a mean, and is scaled up if some members do not contribute
    """

    weights: Mapping[str, float]
    peers: Peers
    first_rounds: Callable[[], dict[str, int]]
    rounds_apart: int = 1
    rule: AggregationRule | None = None
    by_tokens: bool = False
    averages: bool = True


class Server:
    """Keeps the keys' values and the contributions to incomplete rounds. Children declare the keys and their sizes."""

    def __init__(
        self,
        world: World,
        inbox: Mail,
        policy: SyncPolicy,
        codec: CodecMaker,
        upstream: Upstream,
        members: ServerMembers,
        send: Send,
    ) -> None:
        """``send`` sends values: ``World.send``, unless an overlay relays them."""
        self._world = world
        self._policy = policy
        self._upstream = upstream
        self._members = members
        self._combining = Combining(world, members.rule, members.weights) if members.rule is not None else None
        self._first = dict.fromkeys(members.weights, 0)  # first round of each contributor that takes part
        self._begin_round = 0  # this run's first round
        self._send = send
        self._make_codec = codec
        self._codecs: dict[str, Codec] = {}  # one per child, as a codec may have memory
        self._processes: dict[str, int | None] = {}  # by child: the epoch in which its process joined
        self._tables: dict[tuple[str, int], TableCodec] = {}  # by child and key, for keys that travel by rows
        self._keys: Mapping[int, DeclaredKey] = {}
        self._knows_keys = False  # a script may have none
        self._first_key = -1  # the only key for which events are recorded: all keys travel together
        self._values: dict[int, Value] = {}
        self._contributions = Contributions()
        self._groupings = 0  # how often the policy was given new members
        self._taken_round: dict[int, int] = {}  # by key: the last round whose contributions were summed here
        self._copied_round: dict[int, int] = {}  # by key: the last round that another server has summed
        self._valued_round: dict[int, int] = {}  # by key: the round of its value
        self._pulls: dict[int, list[str]] = {}  # by key: members whose pull waits for a value from upstream
        self._waiting: dict[int, list[tuple[str, int]]] = {}  # by key: waiting members, each with the round it needs
        self._lost: set[str] = set()  # children whose process was lost and whose next process has not declared yet
        self._priorities: dict[int, int] = {}  # by key: the priority of its last push
        self._resumed_codecs: dict[str, Any] = {}  # codec states of a checkpoint, until their members declare
        self._running_effects: list[Future[None]] = []  # tasks in progress, kept only if the policy holds replies
        self._ending = False  # every reply from now on is the last
        # (member, key, round) of pushes whose reply is the member's last; kept only if rounds do not wait for all
        self._last_pushes: set[tuple[str, int, int]] = set()
        self._ended_members: set[str] = set()
        self._unanswered: tuple[int, int, Future[Any]] | None = None  # key and round to which all members have pushed
        # called with a child whose pushes in progress are void: the child is lost, or makes its round again
        self.on_ended: Callable[[str], None] = lambda member: None
        self.on_replied: Callable[[int, int], Awaitable[None]] | None = None  # called with key and round after a reply
        inbox.on(MessageKind.DECLARE, self._on_declare)
        inbox.on(MessageKind.INIT, self._on_init)
        inbox.on(MessageKind.PUSH, self._on_push)
        inbox.on(MessageKind.PULL, self._on_pull)
        inbox.on(MessageKind.LEAVE, self._on_leave)

    def values(self) -> list[Tensor]:
        return [self._values[key].tensor for key in sorted(self._values)]

    # ---- membership and checkpoints -----------------------------------------------------------------------------

    def begin_at(self, round_: int) -> None:
        """Resume a run: all rounds before ``round_`` are over."""
        self._begin_round = round_
        if self._policy.waits:
            self._members.peers.begun(round_ - 1)
        self._regroup()

    def on_agreed(self, agreed: Agreed) -> None:
        """Restart all incomplete rounds with the members that take part now: they push their contributions again.

        If rounds do not wait for all members, no round restarts; the server only stops waiting for lost members.
        """
        lost = [child for child, joined in self._processes.items() if self._members.peers.joined_in(child) != joined]
        for child in lost:
            del self._codecs[child], self._processes[child]
            self._ended_members.discard(child)
            for pulling in self._pulls.values():  # the child's next process pulls again
                pulling[:] = [each for each in pulling if each != child]
            for waiting in self._waiting.values():
                waiting[:] = [each for each in waiting if each[0] != child]
        self._lost.update(lost, (each for each in self._members.weights if self._members.peers.joined_in(each) is None))
        if self._policy.waits:
            self._contributions.drop()
            self._answered()
        for child in [*lost, *(self._codecs if self._policy.waits else ())]:
            self.on_ended(child)
        self._regroup(replaced=lost)
        for key in list(self._waiting):
            self._answer_waiting(key)
        if self._ended_members:
            self._world.spawn(self._release([]), "leave, if all others have ended")

    def _regroup(self, replaced: Sequence[str] = ()) -> None:
        """Tell the policy who takes part. ``replaced``: children whose old process is lost.

        Some of these children may take part again already: a new process can start before all nodes have agreed that
        the old process is lost. If rounds do not wait, the policy is then told of the loss first.
        """
        self._groupings += 1
        self._first = {child: max(first, self._begin_round) for child, first in self._members.first_rounds().items()}
        if not self._policy.waits and not self._first.keys().isdisjoint(replaced):
            left = {child: first for child, first in self._first.items() if child not in replaced}
            self._begin(self._policy.regroup(left), "continue without the lost")
        self._begin(self._policy.regroup(self._first), "continue with others")

    def begin_copy(self, key: int, round_: int) -> None:
        """Note that another server has summed a round of ``key``, and that this server is computing its value, too."""
        self._copied_round[key] = round_
        self._members.peers.begun(round_)

    def take_value(self, key: int, round_: int, value: Value) -> None:
        """Store the value of ``key`` after a round, and answer the members that wait for it."""
        self._values[key] = value
        self._valued_round[key] = round_
        if value.control.last and self._policy.waits and not self._ending:
            self._end()
        self._answer_waiting(key)

    async def settle(self) -> None:
        """Wait until everything that ``state`` returns is up to date."""
        await self._upstream.settle()

    def state(self) -> State:
        """Return the state for a checkpoint. Call it between two rounds: no reply is held, every push is answered."""
        state: State = {"ending": int(self._ending)} | under("upstream", self._upstream.state())
        state |= under("policy", self._policy.state())
        state |= {f"value/{key}": value.tensor for key, value in self._values.items()}
        for member, codec in self._codecs.items():
            if self._is_present(member):
                state |= under(f"codec/{member}", codec.state())
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a ``state``. Call it after ``begin_at`` and before any message arrives: members declare again."""
        self._ending = bool(state["ending"])
        self._upstream.load_state(below("upstream", state))
        self._values = {int(key): Value(tensor) for key, tensor in below("value", state).items()}
        self._resumed_codecs = below("codec", state)
        self._policy.load_state(below("policy", state))

    # ---- first values -------------------------------------------------------------------------------------------

    def _on_declare(self, message: Message) -> None:
        member = message.sender
        self._ended_members.discard(member)
        declaration = declaration_of(message)
        codec = self._codecs[member] = self._make_codec(declaration.codec, member)
        for key, shape in declaration.shapes.items():
            codec.declare(key, shape)
        self._tables |= {(member, key): TableCodec(codec, width) for key, width in declaration.widths.items()}
        self._processes[member] = self._members.peers.joined_in(member)
        if member in self._lost:
            self._lost.remove(member)
            self._upstream.on_joined(member)
        self._codecs[member].load_state(below(member, self._resumed_codecs))
        self._resumed_codecs = {
            name: content for name, content in self._resumed_codecs.items() if not name.startswith(f"{member}/")
        }
        if not self._knows_keys:
            self._knows_keys = True
            self._keys = declaration.keys
            self._first_key = min(self._keys, default=-1)
            self._world.spawn(self._upstream.declare(declaration), "declare keys")
        assert self._keys == declaration.keys, f"{member} declares other keys than the children before it"

    def _on_init(self, message: Message) -> None:
        self._world.spawn(self._upstream.init(message.key, message.parts[0], message.meta), f"init key {message.key}")

    def _on_pull(self, message: Message) -> None:
        key = message.key
        member = message.sender
        if "newest" in message.meta and not self._upstream.is_top:
            self._world.spawn(self._pass_on_newest(key, member), "pull the newest value")
            return
        if key in self._values:
            self._waiting.setdefault(key, []).append((member, PULL_ROUND))
            self._answer_waiting(key)
        else:
            self._pull(key, [member])

    def _pull(self, key: int, members: Sequence[str]) -> None:
        """Pull a key's value from upstream for these members; simultaneous requests share one pull."""
        is_first = key not in self._pulls
        self._pulls.setdefault(key, []).extend(members)
        if is_first:
            self._world.spawn(self._pull_from_upstream(key), f"pull key {key}")

    async def _pass_on_newest(self, key: int, member: str) -> None:
        self._values[key] = Value(await self._upstream.pull(key, newest=True))
        await self._send_first_values(key, [member])

    async def _pull_from_upstream(self, key: int) -> None:
        self._values[key] = Value(await self._upstream.pull(key))
        await self._send_first_values(key, self._pulls.pop(key))

    def _answer_waiting(self, key: int) -> None:
        """Answer the waiting members whose round is over.

        A joining member pulls the value after the round before its own first round: with an older value, its parameters
        would differ from all others' in its first round. If all members that were to make that earlier round are lost,
        the joining member begins with the value pulled from upstream. A member that pushes to a round without taking
        part in it receives the value after that round.
        """
        waiting = self._waiting.pop(key, [])
        valued_round = self._valued_round.get(key, self._begin_round - 1)
        pulling = []
        stuck = []
        for member, round_ in waiting:
            first = self._first.get(member, 0)
            needed = first - self._members.rounds_apart if round_ == PULL_ROUND else round_
            if self._policy.waits and valued_round < needed and any(each <= needed for each in self._first.values()):
                self._waiting.setdefault(key, []).append((member, round_))
            elif round_ != PULL_ROUND:
                reply = Reply(key, (round_,), (member,))
                self._world.spawn(self._carry_out([reply]), f"answer round {round_} of key {key}")
            elif self._policy.waits and valued_round < needed:
                stuck.append(member)
            else:
                pulling.append(member)
        if pulling:
            self._world.spawn(self._send_first_values(key, pulling), "answer a pull")
        if stuck:
            self._pull(key, stuck)

    async def _send_first_values(self, key: int, members: Sequence[str]) -> None:
        value = self._values[key].tensor
        sent = await coding.exact(self._world, value)
        for member in members:
            codec = self._codecs.get(member)
            if codec is None:
                continue  # the member is lost
            codec.begin(key, value)
            begins = self._upstream.on_value_sent(key, value, member, PULL_ROUND)
            last = self._ending or self._upstream.ends or not begins
            meta = ReplyControl(last=last).to_meta() if self._first.get(member, 0) or last else {}
            await self._send(member, Message(MessageKind.VALUE, key, PULL_ROUND, meta, (sent,)))

    # ---- rounds -------------------------------------------------------------------------------------------------

    def _on_push(self, message: Message) -> None:
        key = message.key
        member = message.sender
        if self._policy.waits and message.round <= self._taken_round.get(key, PULL_ROUND):
            return  # pushed again after a change of the membership, but already summed: the reply is on its way
        made_by_others = message.round <= self._copied_round.get(key, PULL_ROUND)
        if self._policy.waits and (made_by_others or message.round < self._first.get(member, 0)):
            self._priorities.setdefault(key, message.priority)
            self._waiting.setdefault(key, []).append((member, message.round))
            self._answer_waiting(key)
            return
        codec = self._codec(member, key)
        size = self._keys[key].size
        if not message.parts:  # an overlay has added this contribution to another member's push
            self._on_contribution(message, None)
        elif codec.cost(DECODE, size) is None:
            self._on_contribution(message, codec.decode(key, message.parts, size))
        else:
            self._world.spawn(self._decode(message, codec), f"decode key {key} of {member}")

    async def _decode(self, message: Message, codec: Codec) -> None:
        key = message.key
        member = message.sender
        groupings = self._groupings
        tensor = await coding.decode(self._world, codec, message, self._keys[key].size)
        if self._policy.waits and groupings != self._groupings:
            return  # the member pushes it again
        if self._is_present(member) and self._codec(member, key) is codec:  # else the member was lost meanwhile
            self._on_contribution(message, tensor)

    def _codec(self, member: str, key: int) -> Codec:
        return self._tables.get((member, key)) or self._codecs[member]

    def _on_contribution(self, message: Message, tensor: Tensor | None) -> None:
        key = message.key
        member = message.sender
        meta = message.meta
        now_s = self._world.now()
        self._priorities[key] = message.priority
        self._contributions.add(member, key, message.round, PendingPush(tensor, meta, now_s, message.copies))
        given = meta.get("reports")
        reports = {worker: WorkerReport(*report) for worker, report in given.items()} if given else {}
        effects = self._policy.on_push(Push(member, key, message.round, now_s, reports))
        if effects:
            task = self._world.spawn(self._carry_out(effects), f"round {message.round} of key {key}")
            if self._policy.holds:
                self._running_effects = [*(each for each in self._running_effects if not each.done()), task]
        elif self._policy.waits:
            self._note_unanswered(key, message.round)
        if self._ended_members:
            self._check_no_endless_wait(key, message.round)

    def _note_unanswered(self, key: int, round_: int) -> None:
        """If all members have pushed to a round, start a named wait for the policy's answer, so that a hang names it.

        One such wait at a time is enough to find the cause.
        """
        # highest ranks first: equally fast members push in rank order, so the check mostly stops at the first member
        members = (member for member, first in reversed(self._first.items()) if first <= round_)
        if self._unanswered is None and self._contributions.have_come(members, key, round_):
            answered = self._world.future()
            self._unanswered = (key, round_, answered)
            what = f"policy '{self._policy.chosen}' to answer round {round_} of key {key}, to which all have pushed"
            self._world.spawn(self._world.wait(answered, what), f"an answer to round {round_}")

    def _answered(self) -> None:
        if self._unanswered is not None:
            self._unanswered[2].set_result(None)
            self._unanswered = None

    def _begin(self, effects: list[Effect], why: str) -> None:
        """Carry out effects of several keys, each key in its own task: a relay above may need all keys to go on.

        At the top tier one task carries out all effects. If the policy holds replies, the tasks first wait for the
        running updates that these replies answer.
        """
        by_key: dict[int, list[Effect]] = {}
        for effect in effects:
            by_key.setdefault(0 if self._upstream.is_top else effect.key, []).append(effect)
        for each in by_key.values():
            self._world.spawn(self._carry_out(each, self._running_effects), why)

    def _carry_out(self, effects: list[Effect], after: Sequence[Future[None]] = ()) -> Coroutine[Any, Any, None]:
        """Return the coroutine that carries out effects once the tasks ``after`` are done.

        Replies go only to the process that a member has at this call. The contributions to aggregate are taken in this
        call: before the coroutine starts, a change of the membership may drop them.
        """
        for effect in effects:
            if isinstance(effect, Discard):
                self._contributions.take((effect.member,), effect.key, (effect.round,), self._world.now())
                self._contributions.on_aggregated((effect.member,), effect.key, (effect.round,), self._world.now())
        members = [member for effect in effects if isinstance(effect, Reply) for member in effect.members]
        taken = deque(self._take(effect) for effect in effects if isinstance(effect, Aggregate))
        return self._carry_out_for(effects, taken, {member: self._codecs.get(member) for member in members}, after)

    async def _carry_out_for(
        self,
        effects: list[Effect],
        taken: deque[list[PendingPush]],
        processes: Mapping[str, Codec | None],
        after: Sequence[Future[None]],
    ) -> None:
        """``taken``: the contributions of each ``Aggregate``. ``processes``: by member, the codec of its process."""
        for task in after:
            await self._world.wait(task, "updates before the replies that were held")
        for effect in effects:
            if isinstance(effect, Reply):
                await self._reply(effect, processes)
                continue
            if isinstance(effect, Alarm):
                self._world.spawn(self._wake(effect), f"the alarm of key {effect.key}")
                continue
            if isinstance(effect, Discard):
                continue
            total = await self._aggregate(effect, taken.popleft())
            # If the sum does not go up, no ReplyControl comes back: this round cannot end the run.
            value = await self._upstream.apply(total) if effect.up else Value(total.tensor)
            if value.control.last and not self._policy.waits:
                pairs = zip(effect.members, rounds_of(effect), strict=True)
                self._last_pushes.update((member, effect.key, round_) for member, round_ in pairs)
            self._contributions.on_aggregated(effect.members, effect.key, rounds_of(effect), self._world.now())
            self.take_value(effect.key, effect.round, value)

    def _take(self, effect: Aggregate) -> list[PendingPush]:
        """Remove and return the members' contributions to a round; from now on the round is not repeated."""
        self._taken_round[effect.key] = effect.round
        if self._unanswered is not None and self._unanswered[:2] == (effect.key, effect.round):
            self._answered()
        if self._policy.waits:
            self._members.peers.begun(effect.round)
        return self._contributions.take(effect.members, effect.key, rounds_of(effect), self._world.now())

    async def _wake(self, alarm: Alarm) -> None:
        await self._world.sleep(max(0.0, alarm.at_s - self._world.now()))
        now_s = max(alarm.at_s, self._world.now())  # rounding may leave the clock slightly before the alarm's time
        effects = self._policy.on_alarm(alarm.key, alarm.number, now_s)
        if effects:
            await self._carry_out(effects)

    async def _aggregate(self, effect: Aggregate, taken: list[PendingPush]) -> AggregatedPush:
        """Combine the members' contributions, and keep no reference to them."""
        present = [self._members.weights[member] for member in effect.members]
        if self._members.by_tokens:
            present = await self._count_tokens(present, taken)
        tensors = [contribution.tensor for contribution in taken if contribution.tensor is not None]
        sizes = [(each.tensor.nbytes, each.copies) for each in taken if each.tensor is not None]
        size_bytes = sum(nbytes * copies for nbytes, copies in sizes)
        if sum(copies for _, copies in sizes) == 1:
            size_bytes = 0  # one contribution is its own sum
        if self._combining is not None:
            tensor = await self._combining.total(effect, tensors, size_bytes, len(self._keys))
        else:
            work = Work("sum", effect.round, size_bytes=size_bytes)
            tensor = await self._world.compute(work, lambda: sum_in_order(tensors))
        tensor = await self._rescaled(tensor, effect, math.fsum(present))
        notes = merge_notes([each.notes for each in taken])
        tables = [self._tables[member, effect.key] for member in effect.members if (member, effect.key) in self._tables]
        wanted = asked_by(tables) if tables else None
        priority = self._priorities[effect.key]
        return AggregatedPush(effect.key, effect.round, tensor, effect.members, notes, priority, wanted)

    async def _count_tokens(self, weights: Sequence[float], taken: Sequence[PendingPush]) -> list[float]:
        """Multiply each contribution by the ``tokens_weight`` of its round. Return the weights multiplied likewise."""
        counts = [tokens_weight(*each.notes["trained"]) for each in taken]

        def multiply() -> None:
            for each, count in zip(taken, counts, strict=True):
                assert each.tensor is not None, "a rule keeps overlays that add up on the way away from this"
                each.tensor = buffers.computed(torch.mul, each.tensor, count)

        size_bytes = sum(each.tensor.nbytes for each in taken if each.tensor is not None)
        await self._world.compute(Work("copy", size_bytes=size_bytes), multiply)
        return [weight * count for weight, count in zip(weights, counts, strict=True)]

    async def _rescaled(self, tensor: Tensor, effect: Aggregate, present: float) -> Tensor:
        """Scale the sum as if all members had contributed. ``present``: the sum of the contributors' weights."""
        weights = self._members.weights
        missing = sorted(weights.keys() - set(effect.members))
        scales = self._members.averages and (missing or self._members.by_tokens)
        if not scales:
            return tensor
        factor = math.fsum(weights.values()) / present
        if missing and self._policy.waits and effect.key == self._first_key:
            self._world.record("partial", round=effect.round, targets=", ".join(missing), factor=factor)
        work = Work("copy", size_bytes=tensor.nbytes)
        return await self._world.compute(work, lambda: buffers.computed(torch.mul, tensor, factor))

    async def _reply(self, effect: Reply, processes: Mapping[str, Codec | None]) -> None:
        key = effect.key
        value = self._values[effect.key]
        now_s = self._world.now()
        steps = {**value.control.steps, **effect.steps}  # a tier's own assignment overrides that from above
        pace = value.control.pace if effect.pace is None else astuple(effect.pace)
        if effect.last and not self._ending:
            assert self._upstream.is_top, "a reply ends the run only at the top tier: others would not hear of it"
            self._end()
        payloads: dict[tuple[str, Hashable], coding.Parts] = {}  # by codec and state: members with equal ones share it
        answered = list(zip(effect.members, effect.rounds, strict=True))
        ended = {
            (member, round_)
            for member, round_ in answered  # before any wait: the value may be replaced meanwhile
            if self._is_for(member, processes) and not self._upstream.on_value_sent(key, value.tensor, member, round_)
        }
        for member, round_ in answered:
            if not self._is_for(member, processes):
                continue
            held_s = self._contributions.waited_s(member, key, round_, now_s)
            if held_s > 0 and key == self._first_key:
                self._world.record("held", round=round_, member=member, held_s=round(held_s, 6), by=effect.by)
            last = self._ending or (member, round_) in ended or (member, key, round_) in self._last_pushes
            self._last_pushes.discard((member, key, round_))
            control = ReplyControl(last, value.control.waited_s + held_s, steps, pace)
            codec = self._codec(member, key)
            state = codec.value_state(key, value.tensor.numel())
            parts = payloads.get((codec.cost_name, state))
            if parts is None:
                parts = await coding.encode_value(self._world, codec, key, value.tensor, round_)
                if state is not None:
                    payloads[codec.cost_name, state] = parts
            elif state != NOTHING:
                await coding.follow_value(self._world, codec, key, value.tensor, parts)
            if not self._is_for(member, processes):
                continue  # the member's process was lost during encoding
            await self._send(
                member, Message(MessageKind.VALUE, key, round_, control.to_meta(), parts, self._priorities[key])
            )
        if self.on_replied is not None and effect.rounds:
            await self.on_replied(key, effect.rounds[0])

    def _is_for(self, member: str, processes: Mapping[str, Codec | None]) -> bool:
        """Return whether the member still has the process for which the effects were made."""
        return self._is_present(member) and self._codecs.get(member) is processes[member]

    def _is_present(self, member: str) -> bool:
        return member in self._processes and self._members.peers.joined_in(member) == self._processes[member]

    # ---- the end of the run -------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Mark every reply from now on as the last, and release held replies: no later push would release them."""
        self._ending = True
        self._world.spawn(self._release(self._without(tuple(self._codecs))), "release held replies")

    def _on_leave(self, message: Message) -> None:
        """Handle the end of a worker's pushes, or of the pushes of all workers of a data centre."""
        self._ended_members.add(message.sender)
        effects = self._without((message.sender,))  # before the check: the policy stops waiting for this member
        for key, round_ in self._contributions.pending():
            self._check_no_endless_wait(key, round_)
        self._world.spawn(self._release(effects), f"{message.sender} leaves")

    def _without(self, members: Sequence[str]) -> list[Effect]:
        """Tell the policy that ``members`` push no more. Return the held replies that this releases, as effects."""
        return self._policy.on_members_left(members) if self._policy.holds else []

    async def _release(self, effects: list[Effect]) -> None:
        if effects:
            await self._carry_out(effects, self._running_effects)  # running updates make the values of these replies
        if self._ended_members and self._ended_members.issuperset(
            each for each in self._codecs if self._is_present(each)
        ):
            await self._upstream.leave()

    def _check_no_endless_wait(self, key: int, round_: int) -> None:
        ended = [member for member in self._policy.waiting_for(key, round_) if member in self._ended_members]
        if ended:
            raise RunFailed(
                f"round {round_} of key {key} waits for {ended[0]}, whose script has ended: where all wait for all, "
                "all workers must make the same number of steps (or write 'sync: mixedsync', 'tap' or 'ssp')"
            )
