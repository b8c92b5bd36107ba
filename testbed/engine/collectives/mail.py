"""Messages of collective operations, sorted by operation, lane and sender, so that operations may overlap."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from typing import Any, NamedTuple

from testbed.engine.inbox import Inbox
from testbed.messages import Message, MessageKind
from testbed.world import Future, World

_Way = tuple[str, int, int, str]  # group, operation, lane, sender


class Tag(NamedTuple):
    """One lane of one operation of one group of ranks."""

    group: str
    operation: int
    lane: int


class CollectiveMail:
    """One per node. Messages of a tag and a sender come out in the order in which they were sent."""

    def __init__(self, world: World, inbox: Inbox) -> None:
        self._world = world
        self._here: dict[_Way, deque[Message]] = {}
        self._awaited: dict[_Way, Future[Message]] = {}
        inbox.on(MessageKind.COLLECTIVE, self._on_message)

    def send(self, to: str, tag: Tag, message: Message) -> Coroutine[Any, Any, None]:
        """Send ``message``, marked with ``tag``."""
        message.key = tag.operation
        message.meta["group"], message.meta["lane"] = tag.group, tag.lane
        return self._world.send(to, message)

    def take(self, source: str, tag: Tag) -> Message | None:
        """The next message of this tag from ``source``, if it is here."""
        way = (*tag, source)
        here = self._here.get(way)
        if here is None:
            return None
        message = here.popleft()
        if not here:
            del self._here[way]
        return message

    def receive(self, source: str, tag: Tag) -> Coroutine[Any, Any, Message]:
        """Wait for the next message of this tag from ``source``, which is not here yet; one at a time may."""
        way = (*tag, source)
        assert way not in self._awaited, f"two wait for {source} in {tag}"
        future = self._awaited[way] = self._world.future()
        what = f"{tag.group} operation {tag.operation}, lane {tag.lane} from {source}"
        return self._world.wait(future, what)

    def _on_message(self, message: Message) -> None:
        meta = message.meta
        way = (meta["group"], message.key, meta["lane"], message.sender)
        awaited = self._awaited.pop(way, None)
        if awaited is not None:
            awaited.set_result(message)
        elif way in self._here:
            self._here[way].append(message)
        else:
            self._here[way] = deque((message,))
