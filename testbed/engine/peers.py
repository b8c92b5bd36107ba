"""The other workers of a run without servers, as one of them sees them: who takes part, and on what they agree.

When a worker is lost or joins, every worker

1. gives up what it has under way with the others (``on_change``);
2. waits for the first message of each that joins (HELLO), as a node sends nothing to one that has not sent before;
3. reports its progress to the scheduler, and changes nothing that its report says before the answer. When all who take
   part have reported for the newest epoch, the scheduler tells them the largest progress and who has made it;
4. takes the state of another if it lacks something (STATE).

A change meanwhile begins a new epoch, with new reports. The same reports take the place of the barrier before training,
with epoch 0.

A message of a process that was lost is dropped: each carries the epoch in which its sender has joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from testbed.engine.handover import StateMail
from testbed.engine.inbox import Inbox
from testbed.engine.membership import AGREE, Membership, MembershipChanged
from testbed.messages import Message, MessageKind
from testbed.plan.model import Plan
from testbed.state import State
from testbed.world import Future, World

TRAINED = "trained"  # barrier of workers that change their models no more
NOTHING = -2  # progress of a worker without values
FIRST_VALUES = -1  # of one that has those before training
ENDED = 1 << 40  # of one whose values are the run's result


def regroups(plan: Plan) -> bool:
    """Return whether workers agree with each other when one is lost or joins: the run continues, without servers."""
    servers = any(node.role in ("server", "global_server") for node in plan.nodes)
    return plan.recovery.on_failure == "continue" and not servers


class EpochReports:
    """The reports of an epoch."""

    def __init__(self) -> None:
        self._reports: dict[str, tuple[int, int]] = {}
        self._epoch, self._decided = 0, -1

    def report(self, worker: str, meta: dict[str, Any]) -> None:
        """Note a worker's report: its epoch, progress, and the last round that it knows of."""
        epoch = int(meta["name"].removeprefix(AGREE))
        if epoch > self._epoch:
            self._epoch, self._reports = epoch, {}
        if epoch == self._epoch:
            self._reports[worker] = meta["progress"], meta["last"]

    def decide(self, epoch: int, members: Iterable[str]) -> dict[str, Any] | None:
        """Return what to tell ``members``, in rank order; ``None``: not yet, or they have been told."""
        members = list(members)
        reports = self._reports if self._epoch == epoch else {}
        if self._decided == epoch or any(name not in reports for name in members):
            return None
        self._decided = epoch
        most = max(reports[name][0] for name in members)
        holder = next(name for name in members if reports[name][0] == most)
        return {
            "name": f"{AGREE}{epoch}", "progress": max(most, FIRST_VALUES), "holder": holder,
            "last": min(reports[name][1] for name in members),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Agreed:
    """What all workers of an epoch know: the largest ``progress``, its ``holder``, and the earliest ``last`` round."""

    epoch: int
    progress: int
    holder: str
    last: int


class Peers:
    """``names``: the training workers that take part, in the Plan's order. ``epoch``: the newest that is known here.

    progress   what this worker reports; it must not change between a change of the epoch and the agreement on it
    last       the last round that this worker knows of, in the same report
    on_change  called with the new epoch
    on_agreed  called with every agreement, also one that a newer epoch soon follows
    on_heard   called with a worker that has joined, when it has sent its first message
    states     of this worker for one that lacks it, and of another for this one
    """

    def __init__(self, world: World, inbox: Inbox, membership: Membership, plan: Plan) -> None:
        self._world, self._membership = world, membership
        self.regroups = regroups(plan)
        self._workers = [worker.name for worker in plan.training_workers]
        self._gone: set[str] = set()
        self._joined_in: dict[str, int] = {}  # epochs, of those that have joined a run in progress
        self._heard: dict[str, int] = {}
        self.epoch = self._reported = 0
        self.progress: int | None = None  # None: nothing to report yet
        self.last = plan.training.rounds - 1
        self._decision: Future[Agreed] = world.future()
        self.on_change: list[Callable[[int], object]] = []
        self.on_agreed: Callable[[Agreed], object] = lambda agreed: None
        self.on_heard: Callable[[str], object] = lambda name: None
        self.states = StateMail(world, inbox)
        if self.regroups:
            membership.on_ready = self._on_ready
            membership.on_members_lost.append(self._on_lost)
            membership.on_members_joined = self._on_joined
            membership.on_agreed = self._on_agreed
            inbox.on(MessageKind.HELLO, self._on_hello)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self._workers if name not in self._gone)

    @property
    def by_seniority(self) -> list[str]:
        """``names``, those that have joined a run in progress after all that were there."""
        return sorted(self.names, key=lambda name: self._joined_in.get(name, 0))

    def joined_in(self, name: str) -> int | None:
        """Return the epoch in which a worker's process has joined (0: from the start); ``None`` if it is lost."""
        return None if name in self._gone else self._joined_in.get(name, 0)

    def can_hear(self, name: str) -> bool:
        """Return whether what is sent to a worker reaches it: it was there before this one, or has sent to it."""
        joined = self.joined_in(name)
        return joined is not None and (joined <= self._membership.epoch or self._heard.get(name) == joined)

    @property
    def stamp(self) -> dict[str, int]:
        """Return what tells messages of this process from those of one that was lost."""
        return {"epoch": self._membership.epoch} if self._membership.epoch else {}

    def accepts(self, message: Message) -> bool:
        """Return whether ``message`` is of a process that takes part."""
        return self.joined_in(message.sender) == int(message.meta.get("epoch", 0))

    @property
    def joined_late(self) -> bool:
        return self._membership.joined_late

    async def greet(self) -> None:
        """After ``Membership.join``: if the run is in progress, send every worker the first message."""
        for name in self.names if self.regroups and self.joined_late else ():
            if name != self._world.node:
                await self._world.send(name, Message(MessageKind.HELLO, meta=self.stamp))

    def report(self, progress: int) -> None:
        self.progress = progress
        self._report()

    async def agreed(self, take_from: Callable[[Agreed], str] = lambda agreed: "") -> tuple[Agreed, State | None]:
        """Return what the workers of the newest epoch agree on, and another's state.

        ``take_from`` returns whose state this worker needs; if no one's, it is ``None``. Nothing has changed since the
        agreement when this returns.
        """
        while True:
            agreed = await self._world.wait(self._decision, f"all workers to agree on epoch {self.epoch}")
            state, source = None, take_from(agreed) if agreed.epoch == self.epoch else ""
            if source:
                try:
                    state = await self.states.ask(source)
                except MembershipChanged:
                    continue
            if agreed.epoch == self.epoch:
                return agreed, state

    # ---- changes ------------------------------------------------------------------------------------------------

    def _on_ready(self) -> None:
        membership = self._membership
        self._gone, self._joined_in = set(membership.absent), dict(membership.joined)
        self.epoch = membership.newest_epoch
        if not membership.joined_late:
            self._heard = dict(membership.joined)  # all begin together where the run goes on
        for call in self.on_change if self.epoch else ():
            call(self.epoch)

    def _on_lost(self, nodes: list[str], epoch: int) -> None:
        self._gone.update(nodes)
        for name in nodes:
            self._world.forget(name, self._membership.changed_at_s)
        self._change(epoch)

    def _on_joined(self, nodes: list[str], epoch: int) -> None:
        self._gone.difference_update(nodes)
        self._joined_in |= dict.fromkeys(nodes, epoch)
        self._change(epoch)
        for name in filter(self.can_hear, nodes):
            self.on_heard(name)

    def _change(self, epoch: int) -> None:
        self.epoch = epoch
        if self._decision.done():
            self._decision = self._world.future()
        self.states.give_up()
        for call in self.on_change:
            call(epoch)
        self._report()

    def _on_hello(self, message: Message) -> None:
        self._heard[message.sender] = message.meta["epoch"]
        self._report()
        if self.can_hear(message.sender):  # else the scheduler has yet to say so
            self.on_heard(message.sender)

    def _report(self) -> None:
        """Report for the newest epoch, once, when every worker that has joined since this one has been heard."""
        if self.progress is None or not all(map(self.can_hear, self.names)) or self._reported > self.epoch:
            return
        self._reported = self.epoch + 1
        report = {"name": f"{AGREE}{self.epoch}", "size": 0, "progress": self.progress, "last": self.last}
        self._world.spawn(self._membership.tell_scheduler(Message(MessageKind.BARRIER, meta=report)), "a report")

    def _on_agreed(self, message: Message) -> None:
        meta = message.meta
        epoch = int(meta["name"].removeprefix(AGREE))
        agreed = Agreed(epoch, meta["progress"], meta["holder"], meta["last"])
        self.on_agreed(agreed)
        if epoch == self.epoch:
            self._decision.set_result(agreed)
