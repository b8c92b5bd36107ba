"""A node's side of the scheduler: registration, barriers, changes of the membership, and the end of the run.

Nodes may start in any order: each node registers and waits for READY, which the scheduler sends when every node of the
Plan has registered.

The scheduler handles one message after the other. With thousands of workers, registration and the barrier before
training would take longer than a round. So from ``COLLECTED_NODES`` nodes on, each local server collects the
registrations and barrier messages of its workers, and passes READY and the release on to them. If nodes may come and
go, each node registers by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.engine.inbox import Inbox
from testbed.errors import NodeLost
from testbed.messages import Message, MessageKind
from testbed.plan.model import Plan
from testbed.world import Future, World

COLLECTED_NODES = 200
END = "end"
TRAIN = "train"  # barrier before training
AGREE = "agree/"  # barrier of an epoch, with its number
CHECKPOINT = "checkpoint/"  # barrier of the workers after a round, before a checkpoint is written
SAVED = "saved/"  # barrier of all nodes that have written their state
FINAL = "final"  # not a barrier: all workers have ended; sent to those global servers that score the model
SCRIPTS = "script"  # barrier of all workers' scripts
BEGUN = "begun"  # from a joined worker: its script comes to the SCRIPTS barriers from now on

MEMBERSHIP_MESSAGES = frozenset(
    {MessageKind.READY, MessageKind.EPOCH, MessageKind.RELEASE, MessageKind.REGISTER, MessageKind.BARRIER}
)
"""The kinds of messages by which nodes take part. A resumed server handles these before it has loaded its state."""


def collects(plan: Plan) -> bool:
    """Return whether local servers collect the registrations of their workers."""
    return len(plan.nodes) >= COLLECTED_NODES and not plan.faults and plan.recovery.on_failure != "continue"


def collector_of(plan: Plan, name: str) -> str:
    """Return the local server at which a worker registers; the node itself, if it registers at the scheduler."""
    node = plan.node(name)
    if node.role != "worker" or len(node.parents) != 1 or not collects(plan):
        return name
    (parent,) = node.parents
    return parent if plan.node(parent).role == "server" else name


def collected_at(plan: Plan, server: str) -> tuple[str, ...]:
    node = plan.node(server)
    return tuple(child for child in node.children if collector_of(plan, child) == server) if collects(plan) else ()


class MembershipChanged(Exception):
    """An exchange between workers has ended early, because a worker is lost or has joined."""


class Membership:
    """This node's membership in the run. These attributes are known after ``join``:

    joined_late  whether this node has joined a run in progress
    absent       the nodes that took no part when this node joined
    epoch        the membership epoch in which this node joined; 0 if it was there from the start
    newest_epoch the newest membership epoch that this node knows
    joined       for each node that has joined a run in progress so far, this one included: its membership epoch. Empty
                 unless the run continues without lost nodes
    first        for each of these that is a worker: its first round, if the run resumes from a checkpoint
    successors   for each lost server: the replica that has taken over

    Set the callbacks before messages are read:

    on_ready           called with READY
    on_members_lost    called with the nodes that are lost or have left
    on_checkpoint      at servers: called with a round after which the workers stand still for a checkpoint
    on_trained         at servers that score the model: called when all workers have ended
    on_members_joined  for ``engine.peers``: called with the nodes that have joined
    on_agreed          for ``engine.peers``: called with the scheduler's message
    """

    def __init__(self, world: World, inbox: Inbox, plan: Plan) -> None:
        self._world = world
        self._inbox = inbox
        self._timeouts = plan.timeouts
        (scheduler,) = plan.with_role("scheduler")
        self._scheduler = scheduler.name
        self._collected = collected_at(plan, world.node)
        collector = collector_of(plan, world.node)
        self._registers_at = self._scheduler if collector == world.node else collector
        self._collected_training = tuple(name for name in self._collected if plan.node(name).trains)
        self._missing = {"": set(self._collected), TRAIN: set(self._collected_training)}  # by barrier
        self._all_registered: Future[None] = world.future()
        self._registration = Message(MessageKind.REGISTER)
        self._ready: Future[None] = world.future()
        self._ended: Future[None] = world.future()
        self._barriers: dict[str, Future[dict[str, Any]]] = {}
        self.joined_late = False
        self.epoch = 0
        self.newest_epoch = 0
        self.absent: tuple[str, ...] = ()
        self.on_members_lost: list[Callable[[list[str]], object]] = []
        self.joined: dict[str, int] = {}
        self.changed_at_s = 0.0  # when the scheduler announced the last change
        self.on_members_joined: Callable[[list[str]], object] = lambda nodes: None
        self.on_agreed: Callable[[Message], object] = lambda message: None
        self.on_ready: list[Callable[[], object]] = []
        self.first: dict[str, int] = {}
        self.successors: dict[str, str] = {}
        self.on_checkpoint: Callable[[int], object] | None = None
        self.on_trained: Callable[[], object] = lambda: None
        inbox.on(MessageKind.READY, self._on_ready)
        inbox.on(MessageKind.EPOCH, self._on_epoch)
        inbox.on(MessageKind.RELEASE, self._on_release)
        if self._collected:
            inbox.on(MessageKind.REGISTER, self._on_collected)
            inbox.on(MessageKind.BARRIER, self._on_collected)

    async def join(self) -> None:
        """Register, and return when every node of the Plan has registered."""
        if self._collected:
            registered = f"registration of {self._collected[0]} and others"
            await self._world.wait(self._all_registered, registered, self._timeouts.rendezvous_s)
        await self._world.send(self._registers_at, self._registration)
        await self._world.wait(self._ready, "all nodes to register", self._timeouts.rendezvous_s)

    async def barrier(
        self, name: str, size: int = 0, deadline_s: float | None = None, waiting_for: str = "", **meta: Any
    ) -> dict[str, Any]:
        """Wait until all nodes have reached the barrier ``name``. Return the metadata of the scheduler's release.

        size        the number of nodes to wait for, if the scheduler does not know it
        deadline_s  by default the larger of two deadlines: that for all nodes to register, and that for a step
        waiting_for the text that tells the user what this node waits for; by default the barrier's name
        """
        self._barriers[name] = self._world.future()
        at = self._registers_at if name == TRAIN else self._scheduler
        await self._world.send(at, Message(MessageKind.BARRIER, meta={"name": name, "size": size, **meta}))
        deadline_s = deadline_s or max(self._timeouts.rendezvous_s, self._timeouts.step_deadline_s)
        released = await self._world.wait(self._barriers[name], waiting_for or f"barrier {name!r}", deadline_s)
        del self._barriers[name]
        return released

    async def tell_scheduler(self, message: Message) -> None:
        await self._world.send(self._scheduler, message)

    async def finish(self) -> None:
        """End a worker's part; return when the scheduler has ended the run."""
        await self._world.send(self._scheduler, Message(MessageKind.DONE))
        await self.ended()

    async def depart(self) -> None:
        """Leave a run that continues; return when the scheduler has recorded it."""
        await self._world.send(self._scheduler, Message(MessageKind.LEAVE))
        await self._world.wait(self._ended, "the scheduler to let this worker leave", self._timeouts.rendezvous_s)

    async def ended(self) -> None:
        """Return when the scheduler has declared the end of the run."""
        await self._world.wait(self._ended, "the end of the run", self._timeouts.run_deadline_s)

    def _on_collected(self, message: Message) -> None:
        """Note one worker's registration, or its arrival at the barrier. After the last one, tell the scheduler."""
        missing = self._missing[message.meta.get("name", "")]
        missing.remove(message.sender)
        if missing:
            return
        if message.kind is MessageKind.REGISTER:
            self._all_registered.set_result(None)
        else:
            self._world.spawn(
                self._world.send(self._scheduler, Message(message.kind, meta=dict(message.meta))), "barrier"
            )

    async def _pass_on(self, message: Message) -> None:
        for worker in self._collected if message.kind is MessageKind.READY else self._collected_training:
            await self._world.send(worker, Message(message.kind, meta=dict(message.meta)))

    def _on_ready(self, message: Message) -> None:
        if self._collected:
            self._world.spawn(self._pass_on(message), "ready")
        registered_s = message.meta.get("registered_s")
        if registered_s not in (None, self._registration.sent_at_s):
            return  # the message was for the process that this process replaces
        self.newest_epoch = message.meta.get("epoch", 0)
        self.joined_late = registered_s is not None
        self.absent = tuple(message.meta.get("gone", ()))
        self.joined = dict(message.meta.get("joined", {}))
        self.epoch = self.newest_epoch if self.joined_late else self.joined.get(self._world.node, 0)
        self.first = dict(message.meta.get("first", {}))
        self.successors |= message.meta.get("heirs", {})
        for call in self.on_ready:
            call()
        self._ready.set_result(None)

    def _on_epoch(self, message: Message) -> None:
        self.changed_at_s = message.began_s
        if self._world.node in message.meta["left"] and message.meta.get("well"):
            self._end()
        elif self._world.node in message.meta["left"]:
            self._world.spawn(_fail(self._world.node, message.meta["why"]), "leave")
        elif "joined" in message.meta:
            self.newest_epoch = message.meta["epoch"]
            self.on_members_joined(message.meta["joined"])
        else:
            self.newest_epoch = message.meta["epoch"]
            if "heir" in message.meta:
                self.successors[message.meta["left"][0]] = message.meta["heir"]
            for call in self.on_members_lost:
                call(message.meta["left"])

    def _on_release(self, message: Message) -> None:
        name = message.meta["name"]
        if name == END:
            self._end()
        elif name == FINAL:
            self.on_trained()
        elif name.startswith(AGREE):
            self.on_agreed(message)
        elif name == TRAIN and self._collected:
            self._world.spawn(self._pass_on(message), "release")
        elif name in self._barriers:
            self._barriers[name].set_result(message.meta)
        elif self._ready.done():  # else the message was for the process that this process replaces
            assert self.on_checkpoint is not None, f"released from barrier {name!r}, at which this node does not wait"
            self.on_checkpoint(int(name.removeprefix(CHECKPOINT)))

    def _end(self) -> None:
        self._ended.set_result(None)
        self._inbox.close()


async def _fail(node: str, why: str) -> None:
    """Raise an error in a task that nothing awaits: this ends the node."""
    raise NodeLost(f"{node} cannot continue: {why}")
