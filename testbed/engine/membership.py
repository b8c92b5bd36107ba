"""A node's side of the scheduler: join, barriers, and the end of the run. Independent of who starts first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.engine.inbox import Inbox
from testbed.errors import NodeLost
from testbed.messages import Message, MessageKind
from testbed.plan.model import Plan
from testbed.world import Future, World

END = "end"
CHECKPOINT = "checkpoint/"  # barriers of workers after a round that is to be kept, and of all who have kept it
SAVED = "saved/"


class Membership:
    """Talks to the one scheduler of the run."""

    def __init__(self, world: World, inbox: Inbox, plan: Plan) -> None:
        self._world, self._inbox, self._timeouts = world, inbox, plan.timeouts
        (scheduler,) = plan.with_role("scheduler")
        self._scheduler = scheduler.name
        self._ready: Future[None] = world.future()
        self._ended: Future[None] = world.future()
        self._barriers: dict[str, Future[dict[str, Any]]] = {}
        self.again = False  # this node has come back to a run that went on without it
        self.gone: tuple[str, ...] = ()  # who was not there when it came
        self.epoch = 0  # in which this node has come; 0: it was there from the start
        self.on_left: Callable[[list[str], int], object] = lambda nodes, epoch: None
        self.on_heir: Callable[[str, str], object] = lambda server, heir: None  # which takes the server's place
        self.on_checkpoint: Callable[[int], object] | None = None  # at a server: the workers stand still after a round
        inbox.on(MessageKind.READY, self._on_ready)
        inbox.on(MessageKind.EPOCH, self._on_epoch)
        inbox.on(MessageKind.RELEASE, self._on_release)

    async def join(self) -> None:
        """Returns when every node of the Plan is there."""
        await self._world.send(self._scheduler, Message(MessageKind.REGISTER))
        await self._world.wait(self._ready, "everybody to register", self._timeouts.rendezvous_s)

    async def barrier(self, name: str, size: int, deadline_s: float | None = None, **said: str) -> dict[str, Any]:
        """Returns when ``size`` nodes have reached the barrier of this name, with what the scheduler says then."""
        self._barriers[name] = self._world.future()
        await self._world.send(self._scheduler, Message(MessageKind.BARRIER, meta={"name": name, "size": size, **said}))
        deadline_s = self._timeouts.rendezvous_s if deadline_s is None else deadline_s
        released = await self._world.wait(self._barriers[name], f"barrier {name!r}", deadline_s)
        del self._barriers[name]
        return released

    async def finish(self) -> None:
        """A worker has done its work; returns when all have."""
        await self._world.send(self._scheduler, Message(MessageKind.DONE))
        await self.ended()

    async def depart(self) -> None:
        """A worker leaves the run, which goes on; returns when the scheduler knows."""
        await self._world.send(self._scheduler, Message(MessageKind.LEAVE))
        await self._world.wait(self._ended, "the scheduler's word that it may leave", self._timeouts.rendezvous_s)

    async def ended(self) -> None:
        """Returns when the scheduler has declared the end of the run."""
        await self._world.wait(self._ended, "the end of the run", self._timeouts.run_deadline_s)

    def _on_ready(self, message: Message) -> None:
        self.epoch = message.meta.get("epoch", 0)
        self.again, self.gone = bool(message.meta.get("again")), tuple(message.meta.get("gone", ()))
        for server, heir in message.meta.get("heirs", {}).items():
            self.on_heir(server, heir)
        self._ready.set_result(None)

    def _on_epoch(self, message: Message) -> None:
        if self._world.node in message.meta["left"] and message.meta.get("well"):
            self._end()
        elif self._world.node in message.meta["left"]:
            self._world.spawn(_expelled(self._world.node, message.meta["why"]), "leave")
        else:
            self.on_left(message.meta["left"], message.meta["epoch"])
            if "heir" in message.meta:
                self.on_heir(message.meta["left"][0], message.meta["heir"])

    def _on_release(self, message: Message) -> None:
        if message.meta["name"] == END:
            self._end()
        elif message.meta["name"] in self._barriers:
            self._barriers[message.meta["name"]].set_result(message.meta)
        else:
            assert self.on_checkpoint is not None, f"released from {message.meta['name']!r}, which nobody waits at"
            self.on_checkpoint(int(message.meta["name"].removeprefix(CHECKPOINT)))

    def _end(self) -> None:
        self._ended.set_result(None)
        self._inbox.close()


async def _expelled(node: str, why: str) -> None:
    """An error that nobody awaits ends the node."""
    raise NodeLost(f"{node} cannot go on: {why}")
