"""Carries out one rank's schedule in a World: its pipes run concurrently, their steps one after another.

Messages are sorted by operation, pipe and sender, so that operations may overlap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from testbed.engine.collectives.buffers import Buffer, Parts
from testbed.engine.inbox import Inbox
from testbed.engine.membership import MembershipChanged
from testbed.engine.peers import Company, EpochMail, Peers
from testbed.messages import Message, MessageKind
from testbed.policy.collective.schedule import RankTransfer, Schedule, Steps
from testbed.world import Future, World

T = TypeVar("T")
_Place = tuple[str, int, int, str]  # group, operation, pipe, sender


class Tag(NamedTuple):
    """One pipe of one operation of one group of ranks."""

    group: str
    operation: int
    pipe: int


class CollectiveMail:
    """A node's mail of collective operations. Messages of one tag and sender are taken in the order of sending.

    ``company``: the workers that take part now. When it ends, operations under way raise ``MembershipChanged``.
    """

    def __init__(self, world: World, inbox: Inbox, peers: Peers | None = None) -> None:
        """``peers``: given if the membership of workers may change."""
        self._world = world
        self._peers = peers
        self._arrived: dict[_Place, deque[Message]] = {}
        self._awaited: dict[_Place, Future[Message]] = {}
        self._unchanging = Company()
        if peers is None:
            inbox.on(MessageKind.COLLECTIVE, self._on_message)
        else:
            EpochMail(inbox, peers, together=False).on(MessageKind.COLLECTIVE, self._on_message)
            peers.on_change.append(lambda _: self._give_up())

    @property
    def company(self) -> Company:
        return self._unchanging if self._peers is None else self._peers.company

    def _give_up(self) -> None:
        self._arrived.clear()
        awaited, self._awaited = self._awaited, {}
        for future in awaited.values():
            future.set_exception(MembershipChanged())

    def send(self, to: str, tag: Tag, company: Company, message: Message) -> Coroutine[Any, Any, None]:
        message.key = tag.operation
        message.meta["group"] = tag.group
        message.meta["pipe"] = tag.pipe
        message.meta |= company.stamp
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
        """Wait for the next message of this tag from ``source``; it must not have arrived yet. Only one may wait."""
        place = (*tag, source)
        assert place not in self._awaited, f"two receivers wait for {source} in {tag}"
        future = self._awaited[place] = self._world.future()
        what = f"operation {tag.operation} of group {tag.group!r}, pipe {tag.pipe}, from {source}"
        return self._world.wait(future, what)

    def _on_message(self, message: Message) -> None:
        meta = message.meta
        if not self.company.has_sent(message):
            return  # the message is of an operation that has ended, which its sender does not know yet
        place = (meta["group"], message.key, meta["pipe"], message.sender)
        awaited = self._awaited.pop(place, None)
        if awaited is not None:
            awaited.set_result(message)
        elif place in self._arrived:
            self._arrived[place].append(message)
        else:
            self._arrived[place] = deque((message,))


async def unless_changed(work: Callable[[], Awaitable[T]]) -> tuple[bool, T | None]:
    """Return whether ``work`` ended before the membership changed, and its result, so that a task of this never raises.

    ``work`` is called only when the task begins. So if the run ends before, no coroutine is left without an ``await``.
    """
    try:
        return True, await work()
    except MembershipChanged:
        return False, None


class Operation:
    """One operation at one rank.

    group            the names of its ranks, and their company
    tag              tag of its first pipe
    round, priority  training round and urgency of its messages
    flag             whether this rank raised the flag, or one from which it has received, directly or through others
    """

    def __init__(
        self,
        world: World,
        mail: CollectiveMail,
        group: tuple[Sequence[str], Company],
        tag: Tag,
        round_: int,
        priority: int,
        flag: bool,
    ) -> None:
        self._world = world
        self._mail = mail
        self._ranks, self._company = group
        self._tag = tag
        self.round = round_
        self._priority = priority
        self.flag = flag

    async def run(self, schedule: Schedule, buffer: Buffer) -> None:
        """Return when this rank has done its part; ``buffer`` is final then. Raise ``MembershipChanged``."""
        pipes = [partial(self._pipe, number, steps, buffer) for number, steps in enumerate(schedule.pipes) if steps]
        if len(pipes) == 1:
            return await pipes[0]()
        tasks = [self._world.spawn(unless_changed(pipe), "a pipe") for pipe in pipes]
        what = f"a pipe of operation {self._tag.operation} of group {self._tag.group!r}"
        ended = [await self._world.wait(task, what) for task in tasks]
        if not all(done for done, _ in ended):
            raise MembershipChanged
        return None

    async def _pipe(self, number: int, steps: Steps, buffer: Buffer) -> None:
        tag = self._tag._replace(pipe=number)
        for step in steps:
            # read all before anything is received, which changes the buffer; a full queue must not delay other peers
            sending = []
            for send in step.sends:
                parts = await buffer.read(send)
                if parts is not None:
                    sending.append(self._send(tag, self._ranks[send.peer], parts))
            tasks = [self._world.spawn(one, "a send") for one in sending[1:]] if len(sending) > 1 else ()
            if sending:
                await sending[0]
            for receive in step.receives:
                if not buffer.skips(receive):
                    await self._receive(tag, receive, buffer)
            for task in tasks:
                await self._world.wait(task, f"sends of operation {tag.operation} of group {tag.group!r}")

    def _send(self, tag: Tag, to: str, parts: Parts) -> Coroutine[Any, Any, None]:
        meta = {"flag": True} if self.flag else {}
        message = Message(MessageKind.COLLECTIVE, -1, self.round, meta, parts, self._priority)
        return self._mail.send(to, tag, self._company, message)

    async def _receive(self, tag: Tag, receive: RankTransfer, buffer: Buffer) -> None:
        source = self._ranks[receive.peer]
        if self._company.ended:
            raise MembershipChanged
        message = self._mail.take(source, tag) or await self._mail.receive(source, tag)
        if "flag" in message.meta:
            self.flag = True
        await buffer.write(receive, message.parts)
