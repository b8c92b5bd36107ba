"""Models from neighbours: by round for synchronous mixing, offers and answers of pairs, and the count of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from testbed.engine.inbox import Inbox
from testbed.messages import Message, MessageKind
from testbed.world import Future, World

Handler = Callable[[Message], None]

_KEYS = {"model": 0, "offer": 0, "answer": 1}
"""Messages with a model have a key, as tensors of training have everywhere; those that end a run have none."""


class GossipMail:
    """Hands a worker's gossip messages to handlers by their sort (``what``). Handlers return at once."""

    def __init__(self, world: World, inbox: Inbox) -> None:
        self._world = world
        self._handlers: dict[str, Handler] = {}
        self._models: dict[tuple[int, str], Future[Message]] = {}
        inbox.on(MessageKind.GOSSIP, lambda message: self._handlers[message.meta["what"]](message))
        self.on("model", lambda message: self._model(message.round, message.sender).set_result(message))

    def on(self, what: str, handler: Handler) -> None:
        """Hand messages of this sort to ``handler``; to be called before training, when none can have been sent."""
        self._handlers[what] = handler

    async def send(self, to: str, what: str, round_: int, *parts: Tensor, **meta: Any) -> None:
        """Send one message of this sort."""
        message = Message(MessageKind.GOSSIP, _KEYS.get(what, -1), round_, {"what": what, **meta}, parts)
        await self._world.send(to, message)

    async def model(self, round_: int, sender: str) -> Message:
        """Wait for the model that a neighbour sent in this round."""
        future = self._model(round_, sender)
        message = await self._world.wait(future, f"the model of round {round_} from {sender}")
        del self._models[round_, sender]
        return message

    def _model(self, round_: int, sender: str) -> Future[Message]:
        if (round_, sender) not in self._models:
            self._models[round_, sender] = self._world.future()
        return self._models[round_, sender]
