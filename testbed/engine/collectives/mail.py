"""Messages of collective operations, sorted by operation, lane and sender, so that operations may overlap."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from testbed.engine.inbox import Inbox
from testbed.messages import Kind, Message
from testbed.world import Future, World


class Tag(NamedTuple):
    """One lane of one operation of one group of ranks."""

    group: str
    operation: int
    lane: int


@dataclass(slots=True)
class _Box:
    messages: deque[Message] = field(default_factory=deque)
    waiting: Future[None] | None = None


class CollectiveMail:
    """One per node. Messages of a tag and a sender come out in the order in which they were sent."""

    def __init__(self, world: World, inbox: Inbox) -> None:
        self._world = world
        self._boxes: dict[tuple[Tag, str], _Box] = {}
        inbox.on(Kind.COLLECTIVE, self._on_message)

    async def send(self, to: str, tag: Tag, message: Message) -> None:
        """Send ``message``, marked with ``tag``."""
        message.key = tag.operation
        message.meta["group"], message.meta["lane"] = tag.group, tag.lane
        await self._world.send(to, message)

    async def receive(self, source: str, tag: Tag) -> Message:
        """The next message of this tag from ``source``; one at a time may wait for it."""
        box = self._box(tag, source)
        if not box.messages:
            assert box.waiting is None, f"two wait for {source} in {tag}"
            box.waiting = self._world.future()
            what = f"{tag.group} operation {tag.operation}, lane {tag.lane} from {source}"
            await self._world.wait(box.waiting, what)
            box.waiting = None
        message = box.messages.popleft()
        if not box.messages:
            del self._boxes[tag, source]
        return message

    def _on_message(self, message: Message) -> None:
        box = self._box(Tag(message.meta["group"], message.key, message.meta["lane"]), message.sender)
        box.messages.append(message)
        if box.waiting is not None and not box.waiting.done():
            box.waiting.set_result(None)

    def _box(self, tag: Tag, source: str) -> _Box:
        box = self._boxes.get((tag, source))
        if box is None:
            box = self._boxes[tag, source] = _Box()
        return box
