"""Carries out one rank's schedule in a World: its pipes run concurrently, their steps one after another."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.engine.collectives.buffers import Buffer, Parts
from testbed.engine.collectives.mail import CollectiveMail, Tag
from testbed.messages import Message, MessageKind
from testbed.policy.collective.schedule import RankTransfer, Schedule, Steps
from testbed.world import Work, World


@dataclass(frozen=True, slots=True)
class Label:
    """Whose operation it is: its number in its group, the training round, and its urgency."""

    group: str
    number: int
    round: int
    priority: int


class Operation:
    """One operation at one rank. ``flag``: whether a rank that this one has heard of, directly or not, raised it."""

    def __init__(self, world: World, mail: CollectiveMail, ranks: Sequence[str], label: Label, flag: bool) -> None:
        self._world, self._mail, self._ranks, self._label = world, mail, ranks, label
        self.flag = flag

    async def run(self, schedule: Schedule, buffer: Buffer) -> None:
        """Return when this rank has done its part; ``buffer`` is final then."""
        pipes = [self._pipe(number, steps, buffer) for number, steps in enumerate(schedule.pipes) if steps]
        if len(pipes) == 1:
            return await pipes[0]
        tasks = [self._world.spawn(pipe, "a pipe") for pipe in pipes]
        for task in tasks:
            await self._world.wait(task, f"a pipe of operation {self._label.number} of group {self._label.group!r}")
        return None

    async def _pipe(self, number: int, steps: Steps, buffer: Buffer) -> None:
        tag = Tag(self._label.group, self._label.number, number)
        for step in steps:
            # read all before anything is received, which changes the buffer; a full queue must not delay other peers
            sending = []
            for send in step.sends:
                parts = buffer.read(send)
                if parts is not None:
                    sending.append(self._send(tag, self._ranks[send.peer], parts))
            tasks = [self._world.spawn(one, "a send") for one in sending[1:]] if len(sending) > 1 else ()
            if sending:
                await sending[0]
            for receive in step.receives:
                if not buffer.skips(receive):
                    await self._receive(tag, receive, buffer)
            for task in tasks:
                await self._world.wait(task, f"sends of operation {self._label.number} of group {self._label.group!r}")

    def _send(self, tag: Tag, to: str, parts: Parts) -> Coroutine[Any, Any, None]:
        meta = {"flag": True} if self.flag else {}
        message = Message(MessageKind.COLLECTIVE, -1, self._label.round, meta, parts, self._label.priority)
        return self._mail.send(to, tag, message)

    async def _receive(self, tag: Tag, receive: RankTransfer, buffer: Buffer) -> None:
        source = self._ranks[receive.peer]
        message = self._mail.take(source, tag) or await self._mail.receive(source, tag)
        if "flag" in message.meta:
            self.flag = True
        size_bytes = buffer.work_bytes(receive)
        if size_bytes:
            work = Work("sum", self._label.round, size_bytes=size_bytes)
            await self._world.compute(work, lambda: buffer.write(receive, message.parts))
        else:
            buffer.write(receive, message.parts)
