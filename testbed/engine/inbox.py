"""A node's inbox: hands every message to the handler of its kind, in the order of arrival, until the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from testbed.messages import Message, MessageKind
from testbed.world import World

Handler = Callable[[Message], object]


class Mail(Protocol):
    """Accepts handlers of messages: the inbox itself, or a filter of it for a role."""

    def on(self, kind: MessageKind, handler: Handler) -> None:
        """Hand messages of ``kind`` to ``handler``."""


class Inbox:
    """A node's inbox. It handles one message after the other, in the order of arrival.

    Handlers return at once, and spawn a task for longer work. So no handler sees the half-finished changes of another.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._handlers: dict[MessageKind, Handler] = {}
        self._open = True
        self._first: Collection[MessageKind] = ()
        self._held: list[Message] | None = None

    def on(self, kind: MessageKind, handler: Handler) -> None:
        """Hand messages of ``kind`` to ``handler``."""
        assert self._handlers.get(kind, _drop) is _drop, f"two handlers for {kind}"
        self._handlers[kind] = handler

    def drop(self, kind: MessageKind) -> None:
        """Drop messages of ``kind`` until they have a handler: they were for the process that this one replaces."""
        self._handlers[kind] = _drop

    def hold(self, first: Collection[MessageKind]) -> None:
        """Keep messages until ``release``, except those of the kinds ``first``."""
        self._first = first
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for message in held:
            self._handle(message)

    def close(self) -> None:
        self._open = False

    async def run(self) -> None:
        """Read until closed. There is no deadline: the waits that matter have names and deadlines of their own."""
        if self._open:
            await self._world.serve(self._handle)

    def _handle(self, message: Message) -> bool:
        if self._held is not None and message.kind not in self._first:
            self._held.append(message)
            return True
        handler = self._handlers.get(message.kind)
        assert handler is not None, f"{self._world.node} cannot handle {message.kind} from {message.sender}"
        handler(message)
        return self._open


def _drop(message: Message) -> None:
    pass
