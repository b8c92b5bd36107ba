"""How the nodes of a run agree on who takes part, and go on, when a node is lost, leaves or joins.

The scheduler numbers the changes of the membership; the number is the epoch. Each change ends the rounds in progress at
all nodes. When a node is lost, leaves or joins, every node

1. abandons its exchanges in progress with other nodes (``on_change``);
2. waits for the first message (HELLO, see ``greets``) of each joining node to which it may have to send first: a node
   must not send to a node from which it has heard nothing;
3. reports its progress to the scheduler, and does not change that progress until the answer comes. When all members
   have reported for the newest epoch, the scheduler tells them the largest progress, which node has it, and the first
   round of each worker that has joined;
4. repeats the incomplete rounds with the nodes that now take part (``on_agreed``). Without servers, a worker that is
   behind first takes the state of another worker (STATE).

A further change during these steps begins a new epoch, with new reports. The scheduler sends the agreement of an epoch
to all nodes or to none. Without servers, the reports of epoch 0 replace the barrier before training.

``EpochMail`` drops messages of rounds that ended with their epoch, and messages of lost processes.
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

TRAINED = "trained"  # barrier of workers whose models no longer change
NOTHING = -2  # progress of a node that has no values, or has begun no round
FIRST_VALUES = -1  # progress of a node that has the values before training
ENDED = 1 << 40  # progress of a node whose values are the run's result
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
"""The kinds of messages that become void when their epoch ends, if all members wait for each other."""


def agrees(plan: Plan) -> bool:
    """Return whether the run continues when a node is lost or joins, so that nodes must agree on how to go on."""
    return plan.recovery.on_failure == "continue"


def hands_over(plan: Plan) -> bool:
    """Return whether a joining worker may need another worker's state: servers may hold only sums of gradients.

    Callers still have to check that the optimizer is not at the servers; if it is, the servers hold the whole state.
    """
    gradients = sync_setup.contribution_of(plan) is Contribution.GRADIENT
    return agrees(plan) and gradients and sync_setup.all_wait(plan)


def has_servers(plan: Plan) -> bool:
    return any(node.role in ("server", "global_server") for node in plan.nodes)


def has_all(there: Collection[str], wanted: Collection[str]) -> bool:
    """Return whether ``there`` contains all of ``wanted``; comparing the lengths first is cheap and mostly enough."""
    return len(there) >= len(wanted) and set(there).issuperset(wanted)


class EpochReports:
    """The nodes' reports for the newest epoch."""

    def __init__(self) -> None:
        self._reports: dict[str, tuple[int, int]] = {}
        self._epoch = 0
        self._decided = -1

    def report(self, node: str, meta: dict[str, Any]) -> None:
        """Note a node's report: the epoch, its progress, and the last round of the run that it knows of."""
        epoch = int(meta["name"].removeprefix(AGREE))
        if epoch > self._epoch:
            self._epoch = epoch
            self._reports = {}
        if epoch == self._epoch:
            self._reports[node] = meta["progress"], meta["last"]

    def decide(self, epoch: int, members: Sequence[str]) -> dict[str, Any] | None:
        """Return the agreement to send to ``members``; ``None`` if reports are missing, or it was returned before.

        ``members`` are in rank order: among nodes with the same progress, the first is the holder.
        """
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
    """Chooses the first round of each worker that joins a run with servers: the earliest that no worker has begun.

    Between two rounds that cross the WAN, the workers of a local server may have rounds of their own. So a joining
    worker follows the other workers of its data centre. If it is the only one there, it begins after the last round
    that crossed the WAN and after the last round that its local server has summed: the server accepts no further pushes
    to that round. If the policy holds back replies to workers that run ahead, a joining worker begins after the last
    round that the slowest worker has begun.
    """

    def __init__(self, plan: Plan, joined: Mapping[str, int], first: Mapping[str, int]) -> None:
        """``joined`` and ``first`` come from the checkpoint with which the run begins: epochs and first rounds."""
        self._local = {node.name for node in plan.with_role("server")}
        self._beside = {each.name: self._local.intersection(each.parents) for each in plan.training_workers}
        self._lan_rounds = sync_setup.lan_rounds(plan)
        technique = plan.technique
        self._holds_inside, self._holds_across = (
            SYNC[choice.kind].holds for choice in (technique.sync_tier1, technique.sync_tier2)
        )
        # by worker: the epoch in which it joined, and its first round
        self._given = {name: (joined[name], round_) for name, round_ in first.items() if name in joined}

    def give(self, progress: Mapping[str, int], joined: Mapping[str, int], summed: Mapping[str, int]) -> dict[str, int]:
        """Return the first round of each worker that has joined.

        progress  the last round that each training worker has begun, for all that take part
        joined    the epoch in which each process joined, without those that were there from the start
        summed    the last round that each server has summed; the workers that had begun it may be lost
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
    """The nodes that take part between two changes of the membership.

    stamp  metadata that distinguishes their messages from those of earlier epochs
    ended  whether the membership has changed since
    """

    stamp: Mapping[str, int] = field(default_factory=dict)
    ended: bool = False

    def has_sent(self, message: Message) -> bool:
        """Return whether ``message`` has this stamp."""
        return message.meta.get("epoch") == self.stamp.get("epoch")


@dataclass(frozen=True, slots=True)
class Agreed:
    """The agreement of an epoch.

    progress  the largest progress that any node has reported
    holder    the node that has this progress; empty in runs with servers, which hold the values
    last      the smallest of the last rounds that the nodes have reported
    first     by worker: the first round of those that have joined a run with servers
    """

    epoch: int
    progress: int
    holder: str = ""
    last: int = 0
    first: Mapping[str, int] = field(default_factory=dict)


class Peers:
    """This node's view of the other nodes that take part.

    names      the training workers that take part, in the Plan's order
    epoch      the newest epoch that this node knows
    company    the nodes that take part in that epoch

    continues  whether nodes may be lost, or join
    progress   this node's progress for its report; it must not change between a change of the epoch and its agreement
    last       the last round of the run that this worker knows of, also for the report
    greets     nodes to which this node sends before they have sent to it
    on_change  called with the new epoch
    on_agreed  called with every agreement; in a run with servers, also at the start, unless this node joined late
    on_heard   called with a joined node once this node may send to it
    states     exchanges workers' states: provides this worker's, and asks others for theirs
    """

    def __init__(self, world: World, inbox: Inbox, membership: Membership, plan: Plan) -> None:
        self._world = world
        self._membership = membership
        self.continues = agrees(plan)
        self._has_servers = has_servers(plan)
        self._workers = plan.training_workers
        self.greets: set[str] = set() if self._has_servers else {worker.name for worker in self._workers}
        self._gone: set[str] = set()
        self._joined_in: dict[str, int] = {}  # by node that joined the run in progress: the epoch
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
        """The first of ``names`` that was there from the start; if none is left, the one that joined first."""
        for worker in self._workers:
            if worker.name not in self._gone and worker.name not in self._joined_in:
                return worker.name
        return min(self.names, key=lambda name: self._joined_in.get(name, 0))

    def joined_in(self, name: str) -> int | None:
        """Return the epoch in which a node's process joined (0: at the start); ``None`` if the node is lost."""
        return None if name in self._gone else self._joined_in.get(name, 0)

    def first_round(self, name: str) -> int:
        """Return the first round of a worker by the last agreement; 0 if it was there from the start."""
        return self._newest.first.get(name, 0)

    def can_hear(self, name: str) -> bool:
        """Return whether messages to a node reach it: it joined before this node, or has sent to this node."""
        joined = self.joined_in(name)
        return joined is not None and (joined <= self._membership.epoch or self._heard.get(name) == joined)

    @property
    def stamp(self) -> dict[str, int]:
        """Return the metadata that distinguishes this process's messages from those of a lost process."""
        return {"epoch": self._membership.epoch} if self._membership.epoch else {}

    @property
    def round_stamp(self) -> dict[str, int]:
        """Return the metadata that distinguishes messages since the last agreement from earlier ones."""
        return {"epoch": self._newest.epoch} if self._newest.epoch > 0 else {}

    @property
    def joined_late(self) -> bool:
        return self._membership.joined_late

    async def greet(self) -> None:
        """If this node joined late, send HELLO to all nodes in ``greets``. Call this after ``Membership.join``."""
        for name in sorted(self.greets.difference(self._gone)) if self.continues and self.joined_late else ():
            if name != self._world.node:
                await self._world.send(name, Message(MessageKind.HELLO, meta=self.stamp))

    def report(self, progress: int) -> None:
        self.progress = progress
        self._report()

    def begun(self, round_: int) -> None:
        """Note that this worker has begun a round (call it after ``settle``), or that this server has summed it."""
        self.progress = round_ if self.progress is None else max(self.progress, round_)

    @property
    def settled(self) -> bool:
        """Whether all nodes have agreed on the newest epoch."""
        return not self.continues or (self._ready and self._newest.epoch == self.epoch)

    async def settle(self) -> None:
        """Return when all nodes have agreed on the newest epoch."""
        while not self.settled:
            await self._world.wait(self._decision, f"all nodes to agree on epoch {self.epoch}")

    async def agreed(self, take_from: Callable[[Agreed], str] = lambda agreed: "") -> tuple[Agreed, State | None]:
        """Return the agreement on the newest epoch, and the state of another worker if this worker needs it.

        ``take_from`` returns the name of that worker; if the name is empty, the state is ``None``. When this method
        returns, the membership has not changed since the agreement.
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
        """Return the state after ``round_`` of a worker that was there before this joining worker.

        All nodes have agreed that this worker begins with the next round. The asked worker keeps the state until the
        end of that round, and the round needs a contribution from this worker. So the asked worker cannot have gone
        further, and there is no circular wait. If the asked worker is lost, ask the next one. Raise ``RunFailed`` if
        no worker is left that may have the state.
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
            self._heard = dict(membership.joined)  # in a resumed run, all nodes begin together
        if self.epoch:
            self._end_company()
        if self._has_servers and not membership.joined_late:
            self._reported = self.epoch + 1
            self._take(Agreed(self.epoch, FIRST_VALUES, first=membership.first))
        elif self._has_servers:
            self._report()
        elif not membership.joined_late:
            self._newest = Agreed(self.epoch, FIRST_VALUES)  # workers exchange first values before they agree
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
        if self.can_hear(message.sender):  # else the scheduler's notice that it joined is still on its way
            self.on_heard(message.sender)

    def _report(self) -> None:
        """Report for the newest epoch, once, as soon as this node may send to all present nodes of ``greets``."""
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
        if self._ready:  # else the message was for the process that this process replaces
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
        """Return whether ``message`` belongs to an epoch whose agreement this node has not received yet."""
        return int(message.meta.get("epoch", 0)) > self._newest.epoch

    def keep(self, mail: EpochMail, message: Message, handler: Handler) -> None:
        """Keep an early message, and hand it to ``mail`` again after the next agreement."""
        self._early.append((mail, message, handler))

    def is_of_the_lost(self, message: Message) -> bool:
        """Return whether ``message`` comes from a process that no longer takes part."""
        joined = self.joined_in(message.sender)
        return joined is None or int(message.meta.get("epoch", 0)) < joined

    def has_ended(self, message: Message) -> bool:
        """Return whether ``message`` belongs to an epoch before the last agreement."""
        return int(message.meta.get("epoch", 0)) < self._newest.epoch


class EpochMail:
    """Filters mail by epoch: drops outdated messages, and keeps early ones until this node has their agreement.

    ``together``: rounds combine the contributions of all members, and restart when the membership changes. Then
    messages of earlier epochs' rounds are dropped. Otherwise, only messages of lost processes are dropped.
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
        """Hand a message to ``handler``, keep it if it is early, or drop it if it is outdated."""
        peers = self._peers
        if peers.is_early(message):
            peers.keep(self, message, handler)
        elif not (
            peers.is_of_the_lost(message)
            or (self._together and message.kind in ROUND_MESSAGES and peers.has_ended(message))
        ):
            handler(message)


def first_rounds(plan: Plan, server: NodePlan, peers: Peers) -> dict[str, int]:
    """Return the first round of each contributor of ``server`` that takes part; 0 if it was there from the start.

    The first round of a local server is the smallest first round of its workers, moved forward to the next round that
    crosses the WAN.
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
