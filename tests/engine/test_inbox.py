"""What a node does with messages that come before their handler, or that were not meant for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from testbed.engine.inbox import Inbox
from testbed.messages import Message, MessageKind

NODE = "a/worker0"


class Arrivals:
    """A world in which these messages have come."""

    node = NODE

    def __init__(self, *messages: Message) -> None:
        self._messages = messages

    async def serve(self, handle: Callable[[Message], bool]) -> None:
        for message in self._messages:
            handle(message)


def model(number: int) -> Message:
    return Message(MessageKind.GOSSIP, key=number, sender="b/worker0")


def test_messages_for_its_predecessor_are_dropped_until_a_node_has_a_handler() -> None:
    """Who has not heard of the death of a node's lost process sends it a model, before the new one has registered."""
    got = list[int]()
    inbox = Inbox(Arrivals(model(1)))  # type: ignore[arg-type]
    inbox.drop(MessageKind.GOSSIP)
    asyncio.run(inbox.run())
    inbox.on(MessageKind.GOSSIP, lambda message: got.append(message.key))
    inbox._handle(model(2))
    assert got == [2]


def test_a_message_that_nobody_expects_names_its_sender() -> None:
    with pytest.raises(AssertionError, match=f"{NODE} cannot handle .* from b/worker0"):
        asyncio.run(Inbox(Arrivals(model(1))).run())  # type: ignore[arg-type]


def test_what_is_held_is_handed_over_in_its_order() -> None:
    got = list[int]()
    inbox = Inbox(Arrivals(model(1), Message(MessageKind.READY, key=7, sender="s"), model(2)))  # type: ignore[arg-type]
    for kind in (MessageKind.GOSSIP, MessageKind.READY):
        inbox.on(kind, lambda message: got.append(message.key))
    inbox.hold((MessageKind.READY,))
    asyncio.run(inbox.run())
    assert got == [7]
    inbox.release()
    assert got == [7, 1, 2]
