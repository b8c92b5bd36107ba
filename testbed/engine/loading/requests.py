"""Samples that workers request from each other: encoded, several in one message, by numbers of their data set.

The key of FETCH and of its answer SAMPLES is the number of the request, so that several may be pending.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import torch

from testbed.engine.inbox import Inbox
from testbed.messages import Message, MessageKind
from testbed.world import Future, World

Give = Callable[[list[int], bool], Awaitable[list[bytes]]]


class Requests:
    """One per worker. ``give(numbers, whole)``, to be set before messages are read, answers others.

    ``whole``: from the whole data set, not from the worker's share.
    """

    give: Give

    def __init__(self, world: World, inbox: Inbox) -> None:
        self._world = world
        self._asked = 0
        self._answers: dict[int, Future[Message]] = {}
        inbox.on(MessageKind.FETCH, self._spawn_answer)
        inbox.on(MessageKind.SAMPLES, lambda message: self._answers.pop(message.key).set_result(message))

    async def ask(self, node: str, numbers: Sequence[int], *, whole: bool = False) -> list[bytes]:
        """Return the encoded samples of these numbers from ``node``."""
        self._asked += 1
        number = self._asked
        self._answers[number] = answer = self._world.future()
        parts = (torch.tensor(numbers, dtype=torch.int64),)
        await self._world.send(node, Message(MessageKind.FETCH, number, -1, {"whole": whole}, parts))
        message = await self._world.wait(answer, f"samples from {node}")
        data, sizes = message.parts
        return [bytes(part.numpy()) for part in torch.split(data, sizes.tolist())]

    def _spawn_answer(self, message: Message) -> None:
        self._world.spawn(self._answer(message), "answer a request for samples")

    async def _answer(self, message: Message) -> None:
        contents = await self.give(message.parts[0].tolist(), message.meta["whole"])
        data = torch.frombuffer(bytearray(b"".join(contents)), dtype=torch.uint8)
        sizes = torch.tensor([len(content) for content in contents])
        await self._world.send(message.sender, Message(MessageKind.SAMPLES, message.key, -1, {}, (data, sizes)))
