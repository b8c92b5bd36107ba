"""A sender and a receiver of DGT in virtual time, with a test in place of the network between them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from testbed.engine.dgt.receiver import BlockReceiver
from testbed.engine.dgt.sender import BlockSender
from testbed.engine.inbox import Handler
from testbed.messages import Message, MessageKind
from testbed.policy.order.dgt import Dgt
from testbed.simulation.run import simulate
from testbed.world import World
from tests.contract.tiny import REMOTE, WORKER, tiny_plan


class Post:
    """Handlers by kind; messages are handed to them by the test."""

    def __init__(self) -> None:
        self.handlers: dict[MessageKind, Handler] = {}

    def on(self, kind: MessageKind, handler: Handler) -> None:
        self.handlers[kind] = handler

    def bring(self, *messages: Message, sender: str = WORKER) -> None:
        for message in messages:
            self.handlers[message.kind](replace(message, sender=sender))


class Ends:
    """Both ends. ``sent`` are the sender's messages, in order; ``pushes`` what the server was given."""

    def __init__(self, world: World, options: Dgt.Options) -> None:
        self.world = world
        self.sent: list[Message] = []
        self.asked: list[Message] = []
        self.ends: list[Message] = []
        self.pushes: list[Message] = []
        self.events: list[dict[str, Any]] = []
        self.child, self.server = Post(), Post()
        self.sender = BlockSender(_Side(self, WORKER, self.sent), self.child, options, torch.Generator())  # type: ignore[arg-type]
        self.receiver = BlockReceiver(_Side(self, REMOTE, self.asked), self.server, options)  # type: ignore[arg-type]
        self.receiver.on(MessageKind.PUSH, self.pushes.append)

    async def push(self, tensor: torch.Tensor, round_: int = 0, key: int = 0, **notes: Any) -> list[Message]:
        """The reliable part of one push and its blocks; what says that these have left goes to ``ends``."""
        before = len(self.sent)
        await self.sender.send(REMOTE, Message(MessageKind.PUSH, key, round_, notes, (tensor,)))
        messages = self.sent[before:]
        if len(messages) > 1:
            self.ends.append(messages.pop())
        assert {message.kind for message in messages[1:]} <= {MessageKind.BLOCK}
        return messages

    def end(self, sender: str = WORKER) -> None:
        """Bring what says that all blocks of the pushes so far have left their sender."""
        self.server.bring(*self.ends, sender=sender)
        self.ends.clear()

    def accounts(self) -> dict[tuple[int, int], tuple[int, int, int, int]]:
        """(key, round): sent, delivered, late, lost."""
        return {
            (event["key"], event["round"]): tuple(event[name] for name in ("sent", "delivered", "late", "lost"))
            for event in self.events
            if event["kind"] == "blocks"
        }  # type: ignore[return-value]


class _Side:
    """A world whose messages and records stay in the test."""

    def __init__(self, ends: Ends, node: str, outbox: list[Message]) -> None:
        self._ends, self.node, self._outbox = ends, node, outbox

    async def send(self, to: str, message: Message) -> None:
        self._outbox.append(message)

    async def drain(self, to: str) -> None:
        await self._ends.world.sleep(0.001)

    def record(self, kind: str, **fields: Any) -> None:
        self._ends.events.append({"kind": kind, "node": self.node, **fields})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ends.world, name)


def play(directory: Path, options: Dgt.Options, script: Callable[[Ends], Awaitable[Any]]) -> Any:
    """What ``script`` returns."""

    async def program(world: World) -> Any:
        result = await script(Ends(world, options))
        await world.sleep(1.0)  # for tasks that are still about
        return result

    (exit_,) = simulate(tiny_plan([REMOTE]), lambda plan, node: program, directory, lambda event: None).values()
    if exit_.error is not None:
        raise exit_.error
    return exit_.result
