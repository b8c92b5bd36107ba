"""Messages of collective operations, sorted by operation, pipe and sender, so that operations may overlap."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from typing import Any, NamedTuple

from testbed.engine.inbox import Inbox
from testbed.messages import Message, MessageKind
from testbed.world import Future, World

_Place = tuple[str, int, int, str]  # group, operation, pipe, sender


class Tag(NamedTuple):
    """One pipe of one operation of one group of ranks."""

    group: str
    operation: int
    pipe: int


class CollectiveMail:
    """One per node. Messages of a tag and a sender are taken in the order in which they were sent."""

    def __init__(self, world: World, inbox: Inbox) -> None:
        self._world = world
        self._arrived: dict[_Place, deque[Message]] = {}
        self._awaited: dict[_Place, Future[Message]] = {}
        inbox.on(MessageKind.COLLECTIVE, self._on_message)

    def send(self, to: str, tag: Tag, message: Message) -> Coroutine[Any, Any, None]:
        """Send ``message``, marked with ``tag``."""
        message.key = tag.operation
        message.meta["group"], message.meta["pipe"] = tag.group, tag.pipe
        return self._world.send(to, message)

    def take(self, source: str, tag: Tag) -> Message | None:
        """Return the next message of this tag from ``source``, if it has arrived."""
        place = (*tag, source)
        arrived = self._arrived.get(place)
        if arrived is None:
            return None
        message = arrived.popleft()
        if not arrived:
            del self._arrived[place]
        return message

    def receive(self, source: str, tag: Tag) -> Coroutine[Any, Any, Message]:
        """Wait for the next message of this tag from ``source``, which has not arrived; one at a time may wait."""
        place = (*tag, source)
        assert place not in self._awaited, f"two receivers wait for {source} in {tag}"
        future = self._awaited[place] = self._world.future()
        what = f"operation {tag.operation} of group {tag.group!r}, pipe {tag.pipe}, from {source}"
        return self._world.wait(future, what)

    def _on_message(self, message: Message) -> None:
        meta = message.meta
        place = (meta["group"], message.key, meta["pipe"], message.sender)
        awaited = self._awaited.pop(place, None)
        if awaited is not None:
            awaited.set_result(message)
        elif place in self._arrived:
            self._arrived[place].append(message)
        else:
            self._arrived[place] = deque((message,))
