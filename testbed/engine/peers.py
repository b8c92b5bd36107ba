"""The other nodes of a run that goes on without some of them: who takes part, and on what all agree.

The scheduler numbers changes of the membership: epochs. Each ends the rounds under way for all. When a node is lost,
leaves or joins, every node

1. gives up what it has under way with the others (``on_change``);
2. waits for the first message (HELLO, see ``greets``) of each joining node to which it sends by itself, as a node sends
   nothing to one that has not sent before;
3. reports to the scheduler, workers with their progress, and leaves what it has reported unchanged until the answer.
   When all who take part have reported for the newest epoch, the scheduler tells them the largest progress, who has
   made it, and with which round each worker begins that has joined;
4. then makes the rounds that are not over again, with those that now take part (``on_agreed``). Without servers, a
   worker that lacks something first takes the state of another (STATE).

A change meanwhile begins a new epoch, with new reports. The scheduler sends the agreement of an epoch to all nodes or
to none. Without servers the same reports take the place of the barrier before training, with epoch 0.

``EpochMail`` drops messages of rounds that have ended with their epoch, and those of processes that were lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.engine import sync_setup
from testbed.engine.inbox import Handler, Inbox, Mail
from testbed.engine.membership import AGREE, Membership, MembershipChanged
from testbed.engine.state_mail import StateMail
from testbed.errors import RunFailed
from testbed.messages import Message, MessageKind
from testbed.plan.model import NodePlan, Plan
from testbed.policy.events import Contribution
from testbed.policy.sync import SYNC
from testbed.state import State
from testbed.world import Future, World

TRAINED = "trained"  # barrier of workers that change their models no more
NOTHING = -2  # progress of a node without values, or which has begun no round
FIRST_VALUES = -1  # of one that has those before training
ENDED = 1 << 40  # of one whose values are the run's result
_NOT_READY = -1  # epoch of a node that has not been told yet who takes part

ROUND_MESSAGES = frozenset(
    {
        MessageKind.PUSH,
        MessageKind.BLOCK,
        MessageKind.BLOCKS_SENT,
        MessageKind.MISSING,
        MessageKind.MERGE,
        MessageKind.SPREAD,
        MessageKind.ASK,
        MessageKind.TELL,
    }
)
"""What ends with its epoch, where all wait for each other."""


def agrees(plan: Plan) -> bool:
    """Return whether nodes agree with each other when one is lost or joins: the run continues."""
    return plan.recovery.on_failure == "continue"


def hands_over(plan: Plan) -> bool:
    """Return whether a worker that joins needs another one's state, as servers may have sums of gradients only.

    An optimizer for gradients that is at the servers, after all, leaves nothing to be handed over.
    """
    gradients = sync_setup.contribution_of(plan) is Contribution.GRADIENT
    return agrees(plan) and gradients and sync_setup.all_wait(plan)


def has_servers(plan: Plan) -> bool:
    return any(node.role in ("server", "global_server") for node in plan.nodes)


def has_all(there: Collection[str], wanted: Collection[str]) -> bool:
    """Return whether all that are ``wanted`` are ``there``: mostly a comparison of numbers, as they come one by one."""
    return len(there) >= len(wanted) and set(there).issuperset(wanted)


class EpochReports:
    """The reports of an epoch."""

    def __init__(self) -> None:
        self._reports: dict[str, tuple[int, int]] = {}
        self._epoch = 0
        self._decided = -1

    def report(self, node: str, meta: dict[str, Any]) -> None:
        """Note a node's report: its epoch, progress, and the last round that it knows of."""
        epoch = int(meta["name"].removeprefix(AGREE))
        if epoch > self._epoch:
            self._epoch = epoch
            self._reports = {}
        if epoch == self._epoch:
            self._reports[node] = meta["progress"], meta["last"]

    def decide(self, epoch: int, members: Sequence[str]) -> dict[str, Any] | None:
        """Return what to tell ``members``, in rank order; ``None``: not yet, or they have been told."""
        reports = self._reports if self._epoch == epoch else {}
        if self._decided == epoch or not has_all(reports, members):
            return None
        self._decided = epoch
        most = max(reports[name][0] for name in members)
        holder = next(name for name in members if reports[name][0] == most)
        return {
            "name": f"{AGREE}{epoch}",
            "progress": max(most, FIRST_VALUES),
            "holder": holder,
            "last": min(reports[name][1] for name in members),
        }

    def progress(self, name: str) -> int:
        """Return what a node has reported in this epoch."""
        return self._reports[name][0]


class FirstRounds:
    """The first rounds of workers that join a run with servers: for each, the earliest round that no worker has begun.

    The workers of a local server have rounds of their own between two that cross the WAN, so a worker goes by them. The
    first worker of a data centre begins after the last round that has crossed the WAN, and after the last one that its
    local server has summed, as that one takes nothing more for it. Where replies are held back from workers that run
    ahead, one that joins begins with the slowest.
    """

    def __init__(self, plan: Plan, joined: Mapping[str, int], first: Mapping[str, int]) -> None:
        """``joined``, ``first``: as ``give``, of a checkpoint with which the run begins."""
        self._local = {node.name for node in plan.with_role("server")}
        self._beside = {each.name: self._local.intersection(each.parents) for each in plan.training_workers}
        self._lan_rounds = sync_setup.lan_rounds(plan)
        technique = plan.technique
        self._holds_inside, self._holds_across = (
            SYNC[choice.kind].holds for choice in (technique.sync_tier1, technique.sync_tier2)
        )
        # by worker: the epoch in which it has joined, and its round
        self._given = {name: (joined[name], round_) for name, round_ in first.items() if name in joined}

    def give(self, progress: Mapping[str, int], joined: Mapping[str, int], summed: Mapping[str, int]) -> dict[str, int]:
        """Return the first rounds of the workers that have joined.

        progress  the last round that each training worker has begun; of all that take part
        joined    the epoch in which each process has joined, of those that were not there from the start
        summed    the last round that each server has summed; who had begun it may be lost
        """
        given = {
            name: pair for name, pair in self._given.items() if name in progress and joined.get(name, 0) == pair[0]
        }
        begun = {name: max(reached, given[name][1] - 1) for name, reached in progress.items() if name in given}
        for name, reached in progress.items():
            if name not in joined or reached != NOTHING:
                begun.setdefault(name, max(reached, FIRST_VALUES))
        for name in progress:
            if name not in begun:
                first = self._next(name, begun, summed)
                given[name] = (joined[name], first)
                begun[name] = first - 1
        self._given = given
        return {name: first for name, (_, first) in given.items()}

    def _next(self, name: str, begun: Mapping[str, int], summed: Mapping[str, int]) -> int:
        beside = [reached for other, reached in begun.items() if self._beside[other] == self._beside[name]]
        if beside:
            return (min if self._holds_inside else max)(beside) + 1
        across = max((reached for server, reached in summed.items() if server not in self._local), default=NOTHING)
        reached = max((min if self._holds_across else max)(begun.values(), default=FIRST_VALUES), across)
        inside = max((summed.get(server, NOTHING) for server in self._beside[name]), default=NOTHING)
        return max((reached + 1) // self._lan_rounds * self._lan_rounds, inside + 1)


@dataclass(slots=True)
class Company:
    """Those who take part between two changes of the membership.

    stamp  tells what they send to each other from what others have sent before
    ended  whether the membership has changed since
    """

    stamp: Mapping[str, int] = field(default_factory=dict)
    ended: bool = False

    def has_sent(self, message: Message) -> bool:
        """Return whether ``message`` has this stamp."""
        return message.meta.get("epoch") == self.stamp.get("epoch")


@dataclass(frozen=True, slots=True)
class Agreed:
    """What all nodes of an epoch know: the largest ``progress``, its ``holder``, and the earliest ``last`` round.

    first  the first rounds of workers that have joined a run with servers
    """

    epoch: int
    progress: int
    holder: str = ""
    last: int = 0
    first: Mapping[str, int] = field(default_factory=dict)


class Peers:
    """``names``: the training workers that take part, in the Plan's order. ``epoch``: the newest that is known here.

    company    those who take part in that epoch

    continues  whether nodes may be lost, or join
    progress   what this node reports; it must not change between a change of the epoch and the agreement on it
    last       the last round that this worker knows of, in the same report
    greets     nodes that this one sends to before they have sent to it
    on_change  called with the new epoch
    on_agreed  called with every agreement and, of a node of a run with servers that does not join, when all begin
    on_heard   called with a node that has joined, when it has sent its first message
    states     of this worker for one that lacks it, and of another for this one
    """

    def __init__(self, world: World, inbox: Inbox, membership: Membership, plan: Plan) -> None:
        self._world = world
        self._membership = membership
        self.continues = agrees(plan)
        self._has_servers = has_servers(plan)
        self._workers = plan.training_workers
        self.greets: set[str] = set() if self._has_servers else {worker.name for worker in self._workers}
        self._gone: set[str] = set()
        self._joined_in: dict[str, int] = {}  # epochs, of those that have joined a run in progress
        self._heard: dict[str, int] = {}
        self.epoch = self._reported = 0
        self.company = Company()
        self._ready = False
        self.progress: int | None = NOTHING if self._has_servers else None  # None: nothing to report yet
        self.last = plan.training.rounds - 1
        self._decision: Future[Agreed] = world.future()
        self._newest = Agreed(_NOT_READY, FIRST_VALUES)
        self._early: list[tuple[EpochMail, Message, Handler]] = []
        self.on_change: list[Callable[[int], object]] = []
        self.on_agreed: list[Callable[[Agreed], object]] = []
        self.on_heard: Callable[[str], object] = lambda name: None
        self.states = StateMail(world, inbox)
        if self.continues:
            membership.on_ready.append(self._on_ready)
            membership.on_members_lost.append(self._on_lost)
            membership.on_members_joined = self._on_joined
            membership.on_agreed = self._on_agreed
            inbox.on(MessageKind.HELLO, self._on_hello)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(worker.name for worker in self._workers if worker.name not in self._gone)

    @property
    def eldest(self) -> str:
        """The first of ``names`` that was there from the start; of a run without one, the first that has joined."""
        for worker in self._workers:
            if worker.name not in self._gone and worker.name not in self._joined_in:
                return worker.name
        return min(self.names, key=lambda name: self._joined_in.get(name, 0))

    def joined_in(self, name: str) -> int | None:
        """Return the epoch in which a node's process has joined (0: from the start); ``None`` if it is lost."""
        return None if name in self._gone else self._joined_in.get(name, 0)

    def first_round(self, name: str) -> int:
        """Return the first round of a worker, as far as all have agreed: 0, if it was there from the start."""
        return self._newest.first.get(name, 0)

    def can_hear(self, name: str) -> bool:
        """Return whether what is sent to a node reaches it: it was there before this one, or has sent to it."""
        joined = self.joined_in(name)
        return joined is not None and (joined <= self._membership.epoch or self._heard.get(name) == joined)

    @property
    def stamp(self) -> dict[str, int]:
        """Return what tells messages of this process from those of one that was lost."""
        return {"epoch": self._membership.epoch} if self._membership.epoch else {}

    @property
    def round_stamp(self) -> dict[str, int]:
        """Return what tells messages of rounds since the last agreement from those before."""
        return {"epoch": self._newest.epoch} if self._newest.epoch > 0 else {}

    @property
    def joined_late(self) -> bool:
        return self._membership.joined_late

    async def greet(self) -> None:
        """After ``Membership.join``: if the run is in progress, send the first message to all that may send to it."""
        for name in sorted(self.greets.difference(self._gone)) if self.continues and self.joined_late else ():
            if name != self._world.node:
                await self._world.send(name, Message(MessageKind.HELLO, meta=self.stamp))

    def report(self, progress: int) -> None:
        self.progress = progress
        self._report()

    def begun(self, round_: int) -> None:
        """Note that this worker has begun a round, after ``settle``; or that this server has summed it."""
        self.progress = round_ if self.progress is None else max(self.progress, round_)

    @property
    def settled(self) -> bool:
        """Whether all have agreed on the newest epoch."""
        return not self.continues or (self._ready and self._newest.epoch == self.epoch)

    async def settle(self) -> None:
        """Return when all have agreed on the newest epoch."""
        while not self.settled:
            await self._world.wait(self._decision, f"all nodes to agree on epoch {self.epoch}")

    async def agreed(self, take_from: Callable[[Agreed], str] = lambda agreed: "") -> tuple[Agreed, State | None]:
        """Return what the workers of the newest epoch agree on, and another's state.

        ``take_from`` returns whose state this worker needs; if no one's, it is ``None``. Nothing has changed since the
        agreement when this returns.
        """
        while True:
            agreed = await self._world.wait(self._decision, f"all workers to agree on epoch {self.epoch}")
            state = None
            source = take_from(agreed) if agreed.epoch == self.epoch else ""
            if source:
                try:
                    state = await self.states.ask(source)
                except MembershipChanged:
                    continue
            if agreed.epoch == self.epoch:
                return agreed, state

    async def state_after(self, round_: int) -> State:
        """Return what a worker that was there before has after ``round_``, with which this one, which joins, goes on.

        All have agreed that this one begins with the round after it. The other one has that state until the end of that
        round, which needs a contribution of this one: so it cannot have gone further, and there is no circular wait. If
        it is lost, the next one is asked. Raise ``RunFailed`` if no one is left that may have the state.
        """
        mine = self.joined_in(self._world.node) or 0
        while (self.joined_in(self.eldest) or 0) < mine:
            try:
                return await self.states.ask(self.eldest, round_)
            except MembershipChanged:
                continue
        raise RunFailed(f"{self._world.node} has joined, and no other training worker is left that has the model")

    # ---- changes ------------------------------------------------------------------------------------------------

    def _on_ready(self) -> None:
        membership = self._membership
        self._ready = True
        self._gone = set(membership.absent)
        self._joined_in = dict(membership.joined)
        self.epoch = membership.newest_epoch
        if not membership.joined_late:
            self._heard = dict(membership.joined)  # all begin together where the run goes on
        if self.epoch:
            self._end_company()
        if self._has_servers and not membership.joined_late:
            self._reported = self.epoch + 1
            self._take(Agreed(self.epoch, FIRST_VALUES, first=membership.first))
        elif self._has_servers:
            self._report()
        elif not membership.joined_late:
            self._newest = Agreed(self.epoch, FIRST_VALUES)  # they exchange first values before they agree
            self._hand_over_early()

    def _on_lost(self, nodes: list[str]) -> None:
        self._gone.update(nodes)
        self.states.drop(nodes)
        for name in nodes:
            if name in self.greets or self.states.provide is not None:
                self._world.forget(name, self._membership.changed_at_s)
        self._change()

    def _on_joined(self, nodes: list[str]) -> None:
        self._gone.difference_update(nodes)
        self._joined_in |= dict.fromkeys(nodes, self._membership.newest_epoch)
        self._change()
        for name in filter(self.can_hear, nodes):
            self.on_heard(name)

    def _change(self) -> None:
        self.epoch = self._membership.newest_epoch
        if self._decision.done():
            self._decision = self._world.future()
        self.states.give_up()
        self._end_company()
        self._report()

    def _end_company(self) -> None:
        self.company.ended = True
        self.company = Company({"epoch": self.epoch})
        for call in self.on_change:
            call(self.epoch)

    def _on_hello(self, message: Message) -> None:
        self._heard[message.sender] = message.meta["epoch"]
        self._report()
        if self.can_hear(message.sender):  # else the scheduler has yet to say so
            self.on_heard(message.sender)

    def _report(self) -> None:
        """Report for the newest epoch, once, when every greeted node that has joined since this one has been heard."""
        present = self.greets.difference(self._gone)
        if not self._ready or self.progress is None or not all(map(self.can_hear, present)):
            return
        if self._reported > self.epoch:
            return
        self._reported = self.epoch + 1
        report = {"name": f"{AGREE}{self.epoch}", "size": 0, "progress": self.progress, "last": self.last}
        self._world.spawn(self._membership.tell_scheduler(Message(MessageKind.BARRIER, meta=report)), "a report")

    def _on_agreed(self, message: Message) -> None:
        meta = message.meta
        epoch = int(meta["name"].removeprefix(AGREE))
        agreed = Agreed(epoch, meta["progress"], meta["holder"], meta["last"], meta.get("first", {}))
        if self._ready:  # else it was for the process in whose place this one is
            self._take(agreed)

    def _take(self, agreed: Agreed) -> None:
        self._newest = agreed
        for call in self.on_agreed:
            call(agreed)
        if agreed.epoch == self.epoch:
            self._decision.set_result(agreed)
        self._hand_over_early()

    def _hand_over_early(self) -> None:
        early, self._early = self._early, []
        for mail, message, handler in early:
            mail.take(message, handler)

    # ---- messages -----------------------------------------------------------------------------------------------

    def is_early(self, message: Message) -> bool:
        """Return whether ``message`` is of an epoch on which this node has yet to agree."""
        return int(message.meta.get("epoch", 0)) > self._newest.epoch

    def keep(self, mail: EpochMail, message: Message, handler: Handler) -> None:
        """Hand an early message to ``mail`` once more after the next agreement."""
        self._early.append((mail, message, handler))

    def is_of_the_lost(self, message: Message) -> bool:
        """Return whether ``message`` is of a process that takes no part any more."""
        joined = self.joined_in(message.sender)
        return joined is None or int(message.meta.get("epoch", 0)) < joined

    def has_ended(self, message: Message) -> bool:
        """Return whether ``message`` is of an epoch before the last agreement."""
        return int(message.meta.get("epoch", 0)) < self._newest.epoch


class EpochMail:
    """Mail of which nothing arrives that has ended with its epoch, and nothing before this node has agreed on it.

    ``together``: rounds combine the contributions of all, and are made again when the membership changes. Otherwise
    only messages of lost processes are dropped.
    """

    def __init__(self, mail: Mail, peers: Peers, *, together: bool) -> None:
        self._mail = mail
        self._peers = peers
        self._together = together

    def on(self, kind: MessageKind, handler: Handler) -> None:
        if self._peers.continues:
            self._mail.on(kind, lambda message: self.take(message, handler))
        else:
            self._mail.on(kind, handler)

    def take(self, message: Message, handler: Handler) -> None:
        """Hand over a message that has arrived, unless it has ended, or is early."""
        peers = self._peers
        if peers.is_early(message):
            peers.keep(self, message, handler)
        elif not (
            peers.is_of_the_lost(message)
            or (self._together and message.kind in ROUND_MESSAGES and peers.has_ended(message))
        ):
            handler(message)


def first_rounds(plan: Plan, server: NodePlan, peers: Peers) -> dict[str, int]:
    """Return the first round of each contributor of ``server`` that takes part: 0, if it was there from the start.

    Of a local server it is that of the first of its workers, or the next round that crosses the WAN.
    """
    across = sync_setup.rounds_apart(plan, server)
    found = {}
    for child in sync_setup.contributors(plan, server):
        below = (plan.node(name) for name in (child, *plan.node(child).children))
        workers = [node.name for node in below if node.role == "worker" and node.trains]
        present = [name for name in workers if peers.joined_in(name) is not None]
        if peers.joined_in(child) is not None and present:
            first = min(map(peers.first_round, present))
            found[child] = (first // across + 1) * across - 1 if first else 0
    return found
