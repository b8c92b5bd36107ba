"""Receives activations and their gradients from the stages before and after."""

from __future__ import annotations

from testbed.engine.inbox import Inbox
from testbed.messages import Message, MessageKind
from testbed.world import Future, World

KINDS = (MessageKind.ACTIVATION, MessageKind.ACTIVATION_GRADIENT)
_Place = tuple[MessageKind, int, int]  # kind, step, key


class PipelineMail:
    """A worker's mail from other stages. A message may arrive before or after the worker begins to wait for it."""

    def __init__(self, world: World, inbox: Inbox) -> None:
        self._world = world
        self._coming: dict[_Place, Future[Message]] = {}
        for kind in KINDS:
            inbox.on(kind, self.put)

    def put(self, message: Message) -> None:
        """Take a message that has arrived, or that this worker sends to itself."""
        self._future((message.kind, message.meta["step"], message.key)).set_result(message)

    async def take(self, kind: MessageKind, step: int, key: int, what: str) -> Message:
        """Wait for the message of this kind, step and key, and return it. ``what`` names the wait."""
        place = (kind, step, key)
        message = await self._world.wait(self._future(place), what)
        del self._coming[place]
        return message

    def _future(self, place: _Place) -> Future[Message]:
        if place not in self._coming:
            self._coming[place] = self._world.future()
        return self._coming[place]
