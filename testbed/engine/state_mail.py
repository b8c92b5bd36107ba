"""Sends workers' states as messages: a worker that lacks a state asks another worker for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from testbed.engine.inbox import Inbox
from testbed.engine.membership import MembershipChanged
from testbed.messages import Message, MessageKind
from testbed.state import State
from testbed.world import Future, World


class StateMail:
    """Asks another worker for its state, and answers other workers' requests with this worker's (``provide``).

    A request names a round. This worker answers once it has done that round (``done``); at once for round -1.
    """

    def __init__(self, world: World, inbox: Inbox) -> None:
        self._world = world
        self._done = -1
        self._waiting: list[Message] = []
        self._asked = 0  # number of requests so far
        self._answer: Future[Message] | None = None
        self.provide: Callable[[], Awaitable[State]] | None = None
        inbox.on(MessageKind.STATE, self._on_state)

    async def ask(self, source: str, round_: int = -1) -> State:
        """Return another worker's state after ``round_``. Raise ``MembershipChanged`` after ``give_up``."""
        self._asked, self._answer = self._asked + 1, self._world.future()
        await self._world.send(source, Message(MessageKind.STATE, self._asked, round_))
        when = f" after round {round_}" if round_ >= 0 else ""
        message = await self._world.wait(self._answer, f"the state of {source}{when}")
        return unpacked(message.meta, message.parts)

    def give_up(self) -> None:
        """Stop waiting for an answer."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(MembershipChanged())

    def drop(self, nodes: Collection[str]) -> None:
        """Drop the requests of lost workers."""
        self._waiting = [each for each in self._waiting if each.sender not in nodes]

    def done(self, round_: int) -> None:
        """Note that this worker has the state after ``round_``."""
        self._done = round_
        self._answer_those_who_wait()

    def _on_state(self, message: Message) -> None:
        if "layout" not in message.meta:
            self._waiting.append(message)
            self._answer_those_who_wait()
        elif message.key == self._asked and self._answer is not None and not self._answer.done():
            self._answer.set_result(message)

    def _answer_those_who_wait(self) -> None:
        due = [each for each in self._waiting if each.round <= self._done]
        self._waiting = [each for each in self._waiting if each.round > self._done]
        for message in due:
            self._world.spawn(self._send(message), f"the state after round {message.round} for {message.sender}")

    async def _send(self, asked: Message) -> None:
        assert self.provide is not None, f"{asked.sender} asks for a state, but there is none"
        meta, parts = packed(await self.provide())
        await self._world.send(asked.sender, Message(MessageKind.STATE, asked.key, asked.round, meta, parts))


def packed(state: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
    """Return a state as metadata and parts. The parts are the tensors, joined by type.

    The metadata hold the tensors' names and shapes, and all other content.
    """
    by_type: dict[torch.dtype, list[Tensor]] = {}
    layout = []
    rest = {}
    for name, content in state.items():
        if not isinstance(content, Tensor):
            rest[name] = content
            continue
        alike = by_type.setdefault(content.dtype, [])
        layout.append([name, list(by_type).index(content.dtype), list(content.shape)])
        alike.append(content.reshape(-1))
    return {"layout": layout, "rest": rest}, tuple(torch.cat(alike) for alike in by_type.values())


def unpacked(meta: Mapping[str, Any], parts: Sequence[Tensor]) -> State:
    state: State = dict(meta["rest"])
    starts = [0] * len(parts)
    for name, part, shape in meta["layout"]:
        start = starts[part]
        starts[part] = stop = start + torch.Size(shape).numel()
        state[name] = parts[part][start:stop].view(shape).clone()
    return state
