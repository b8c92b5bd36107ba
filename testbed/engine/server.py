"""The server of one tier: collects its children's pushes, and does what the synchronisation policy decides.

A local server and a global server are this same role with another upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from testbed.codec.base import Codec
from testbed.engine.checkpoint import below, under
from testbed.engine.contributions import Contributions, PendingPush
from testbed.engine.inbox import Mail
from testbed.engine.kvworker import PULL_ROUND, CodecMaker, ReplyControl, Send, Value
from testbed.engine.membership_view import MembershipView
from testbed.engine.upstream import AggregatedPush, Upstream
from testbed.errors import RunFailed
from testbed.messages import Message, MessageKind
from testbed.policy.events import Aggregate, Effect, Push, Reply, WorkerReport
from testbed.policy.sync.base import SyncPolicy
from testbed.world import Future, Work, World

TellJoined = Callable[[str, int], Coroutine[Any, Any, None]]  # a member, and its first round


class Server:
    """Values of keys, and the contributions of rounds not yet complete. Knows sizes by its children's declarations.

    ``weight``: what its members count for together in a mean, for values that are made here and not above.
    """

    def __init__(
        self,
        world: World,
        inbox: Mail,
        policy: SyncPolicy,
        codec: CodecMaker,
        upstream: Upstream,
        shares: Mapping[str, float],
        send: Send | None = None,
    ) -> None:
        """``shares``: what each member counts for. ``send`` takes the place of the world's own for values, where an
        overlay passes them on.
        """
        self._presence = MembershipView(shares, policy)
        self._world, self._policy, self._upstream = world, policy, upstream
        self._send = send or world.send
        self._make_codec = codec
        self._codecs: dict[str, Codec] = {}  # one per child: a codec may have memory
        self._sizes: dict[int, int] = {}
        self._first_key = -1  # it speaks for all in records, as they travel together
        self._values: dict[int, Value] = {}
        self._contributions = Contributions()
        self._ending = False
        self._left: set[str] = set()
        self._at_work: list[Future[None]] = []  # under a bounded policy: effects that are being carried out
        self._resumed: dict[str, Any] = {}
        self._pulls: dict[int, list[str]] = {}
        self._priorities: dict[int, int] = {}  # of keys, as their pushes came; answers go back with the same
        self.tell_joined: TellJoined | None = None  # is to be done before a member that has joined has its values
        self._being_told: dict[str, Future[None]] = {}
        self._left_in: dict[str, int] = {}  # epochs
        inbox.on(MessageKind.DECLARE, self._on_declare)
        inbox.on(MessageKind.INIT, self._on_init)
        inbox.on(MessageKind.PUSH, self._on_push)
        inbox.on(MessageKind.PULL, self._on_pull)
        inbox.on(MessageKind.LEAVE, self._on_leave)

    def begin_at(self, round_: int) -> None:
        """All rounds before ``round_`` are over: the run is resumed."""
        self._presence.begin_at(round_)

    def lost(self, nodes: Iterable[str], epoch: int = 0) -> None:
        """These are gone since ``epoch``. Whoever waited for them alone is answered."""
        for member in nodes:
            self._left_in[member] = epoch
            effects = self._presence.on_member_lost(member)
            if effects:
                self._world.spawn(self._carry_out(effects), f"go on without {member}")

    def absent(self, nodes: Iterable[str]) -> None:
        """They were not there when this server came. Who has declared its keys meanwhile is."""
        self.lost(node for node in nodes if node not in self._codecs)

    def resume_member(self, member: str, begin: int) -> None:
        """It has joined another server, whose place this one is to take, and has rounds from ``begin`` on."""
        self._presence.resume_member(member, begin)

    def values(self) -> list[Tensor]:
        """Current values in the order of keys."""
        return [self._values[key].tensor for key in sorted(self._values)]

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, between two rounds: nothing is held then, and everybody has been answered."""
        state: dict[str, Any] = {"ending": int(self._ending)} | under("upstream", self._upstream.state())
        state |= {f"value/{key}": value.tensor for key, value in self._values.items()}
        for member, codec in self._codecs.items():
            state |= under(f"codec/{member}", codec.state())
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Inverse of ``state``, before any message has come; members then declare their keys, and go on."""
        self._ending = bool(state["ending"])
        self._upstream.load_state(below("upstream", state))
        self._values = {int(key): Value(tensor) for key, tensor in below("value", state).items()}
        self._resumed = below("codec", state)

    # ---- first values -------------------------------------------------------------------------------------------

    def _on_declare(self, message: Message) -> None:
        if message.meta.get("epoch", 0) < self._left_in.get(message.sender, 0):
            return  # it was still there when it said so
        keys, counts = message.parts
        sizes = dict(zip(keys.tolist(), counts.tolist(), strict=True))
        said = message.meta.get("codec")
        self._codecs[message.sender] = self._make_codec(said)
        if "since" in message.meta:
            self._presence.resume_member(message.sender, message.meta["since"])
        elif self._presence.declare(message.sender) and self.tell_joined is not None:
            telling = self.tell_joined(message.sender, self._presence.begins(message.sender))
            self._being_told[message.sender] = self._world.spawn(telling, f"tell that {message.sender} has joined")
        self._codecs[message.sender].load_state(below(message.sender, self._resumed))
        if not self._sizes:
            self._sizes, self._first_key = sizes, min(sizes, default=-1)
            self._world.spawn(self._upstream.declare(sizes, said), "declare keys")
        assert self._sizes == sizes, f"{message.sender} declares other keys than the children before it"

    def _on_init(self, message: Message) -> None:
        self._world.spawn(self._upstream.init(message.key, message.parts[0], message.meta), f"init key {message.key}")

    def _on_pull(self, message: Message) -> None:
        if message.sender in self._presence.gone:
            return
        if message.key in self._values:
            if self._presence.may_have(message.key, message.sender):
                self._world.spawn(self._first_values(message.key, [message.sender]), "answer a pull")
            return
        waiting = self._pulls.setdefault(message.key, [])
        waiting.append(message.sender)
        if len(waiting) == 1:
            self._world.spawn(self._fetch(message.key), f"fetch key {message.key}")

    async def _fetch(self, key: int) -> None:
        self._values[key] = Value(await self._upstream.pull(key))
        if self._upstream.first.begin:  # this server itself has joined
            self._presence.begin_at(self._upstream.first.begin)
        await self._first_values(key, self._pulls.pop(key))

    async def _first_values(self, key: int, members: list[str]) -> None:
        value, first = self._values[key].tensor, self._upstream.first
        for member in members:
            if member in self._being_told:
                await self._world.wait(self._being_told.pop(member), f"others to know that {member} has joined")
            self._codecs[member].begin(key, value)
            self._upstream.on_value_sent(key, value, member)
            begin = max(self._presence.begins(member), first.begin)
            advice = ReplyControl(last=self._ending or first.last, begin=begin).to_meta() if begin else {}
            await self._send(member, Message(MessageKind.VALUE, key, PULL_ROUND, advice, (value,)))

    # ---- rounds -------------------------------------------------------------------------------------------------

    def _on_push(self, message: Message) -> None:
        key, member, now_s = message.key, message.sender, self._world.now()
        if member in self._presence.gone:
            return  # it died with this on its way
        # without parts, it is in the sum that came in another member's name
        tensor = self._codecs[member].decode(key, message.parts, self._sizes[key]) if message.parts else None
        self._priorities[key] = message.priority
        self._contributions.add(member, key, message.round, PendingPush(tensor, message.meta, now_s, message.copies))
        said = message.meta.get("reports")
        reports = {worker: WorkerReport(*report) for worker, report in said.items()} if said else {}
        effects = self._policy.on_push(Push(member, key, message.round, now_s, reports))
        if effects:
            task = self._world.spawn(self._carry_out(effects), f"round {message.round} of key {key}")
            if self._policy.holds:
                self._at_work = [*(each for each in self._at_work if not each.done()), task]
        if self._left:
            self._check_nobody_waits_in_vain(key, message.round)

    async def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                await self._answer(effect)
                continue
            total = await self._total(effect)
            # only what has been above can end the run: in a round inside, other data centres would not hear of it
            value = await self._upstream.apply(total) if effect.up else Value(total.tensor)
            joined = self._combined(effect, value)
            if joined:
                await self._first_values(effect.key, joined)

    def _combined(self, effect: Aggregate, value: Value) -> list[str]:
        """The new value is here. Returns who has joined, and is to have it."""
        self._values[effect.key] = value
        if value.advice.last and not self._ending:
            self._end()
        self._contributions.combined(effect.members, effect.key, effect.round, self._world.now())
        return self._presence.combined(effect.key, effect.round)

    async def _total(self, effect: Aggregate) -> AggregatedPush:
        """What the members have pushed, added up; nothing of it is kept while the sum is on its way."""
        taken = self._contributions.take(effect.members, effect.key, effect.round, self._world.now())
        tensors = [contribution.tensor for contribution in taken if contribution.tensor is not None]
        size_bytes = sum(each.tensor.nbytes * each.copies for each in taken if each.tensor is not None)
        work = Work("sum", effect.round, size_bytes=size_bytes)
        tensor = await self._world.compute(work, lambda: sum_in_order(tensors))
        tensor = self._made_whole(tensor, effect)
        notes = merged_notes([each.notes for each in taken])
        return AggregatedPush(effect.key, effect.round, tensor, effect.members, notes, self._priorities[effect.key])

    def _made_whole(self, tensor: Tensor, effect: Aggregate) -> Tensor:
        """Without some members, the others' contributions stand for theirs too: a mean over those who are there."""
        factor = self._presence.factor(effect.members)
        if factor == 1.0:
            return tensor
        if effect.key == self._first_key:
            missing = sorted(self._presence.shares.keys() - set(effect.members))
            self._world.record("partial", round=effect.round, targets=", ".join(missing), factor=factor)
        return tensor * factor

    async def _answer(self, effect: Reply) -> None:
        key, value, now_s = effect.key, self._values[effect.key], self._world.now()
        steps = {**value.advice.steps, **effect.steps}  # a tier's own assignment overrides that from above
        if effect.last and not self._ending:
            assert self._upstream.is_top, "a reply ends the run only at the top tier: others would not hear of it"
            self._end()
        for member, round_ in zip(effect.members, effect.rounds, strict=True):
            if member in self._presence.gone or round_ < self._presence.begins(member):
                continue  # it died; or it was another process of that name that pushed, and died
            held_s = self._contributions.waited_s(member, key, round_, now_s)
            if held_s > 0 and key == self._first_key:
                self._world.record("held", round=round_, member=member, held_s=round(held_s, 6), by=effect.by)
            waited_s = value.advice.waited_s + held_s
            advice = ReplyControl(self._ending, waited_s, steps)
            parts = self._codecs[member].encode_value(key, value.tensor)
            self._upstream.on_value_sent(key, value.tensor, member)
            await self._send(
                member, Message(MessageKind.VALUE, key, round_, advice.to_meta(), parts, self._priorities[key])
            )

    # ---- the end ------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """From now on every answer says that it is the last; so whoever is held would be held for ever."""
        self._ending = True
        self._world.spawn(self._let_go(tuple(self._codecs)), "answer whom nobody will free")

    def _on_leave(self, message: Message) -> None:
        """A script has ended, or those of all workers of a data centre have."""
        self._left.add(message.sender)
        for key, round_ in self._contributions.begun():
            self._check_nobody_waits_in_vain(key, round_)
        self._world.spawn(self._let_go((message.sender,)), f"{message.sender} leaves")

    async def _let_go(self, members: Sequence[str]) -> None:
        if self._policy.holds:
            effects = self._policy.on_members_left(members)
            for task in self._at_work:  # the values that are about to be answered with
                await self._world.wait(task, "updates before the last answers")
            await self._carry_out(effects)
        if self._left.issuperset(self._codecs):
            await self._upstream.leave()

    def _check_nobody_waits_in_vain(self, key: int, round_: int) -> None:
        gone = [member for member in self._policy.waiting_for(key, round_) if member in self._left]
        if gone:
            raise RunFailed(
                f"round {round_} of key {key} waits for {gone[0]}, whose script has ended: where all wait for all, "
                "all workers make the same number of steps (make it so, or write 'sync: mixedsync', 'tap' or 'ssp')"
            )


def sum_in_order(tensors: list[Tensor]) -> Tensor:
    """Sum in the order given, so that the result does not depend on who arrived first."""
    if len(tensors) == 1 or tensors[0].is_meta:  # of sizes without numbers there is nothing to add
        return tensors[0]
    total = tensors[0] + tensors[1]
    for tensor in tensors[2:]:
        total += tensor
    return total


def merged_notes(all_notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the pushes said, together."""
    if not any(all_notes):
        return {}
    notes: dict[str, Any] = {}
    if any(each.get("last") for each in all_notes):
        notes["last"] = True
    losses = [each["loss"] for each in all_notes if "loss" in each]
    if losses:
        notes["loss"] = sum(losses) / len(losses)
    reports = {worker: report for each in all_notes for worker, report in each.get("reports", {}).items()}
    return notes | ({"reports": reports} if reports else {})
