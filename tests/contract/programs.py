"""What runs in the worlds of a test: programs, and who runs them to their end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from testbed.messages import Message
from testbed.world import World

Program = Callable[[World], Awaitable[Any]]


class RunWorlds(Protocol):
    """Builds one connected world per name (``tiny_plan``), runs the coroutine functions in them to the end.

    Returns what each returned, which is plain data (it may have to cross a process boundary). If one raises, the call
    raises that same error, or a ``RunFailed`` that names it.
    """

    def __call__(self, programs: Mapping[str, Program], /) -> dict[str, Any]: ...

    def events(self, node: str) -> list[dict[str, Any]]:
        """What that node recorded in the last call, in order, each with ``kind`` and ``t``."""


async def idle(world: World) -> None:
    """A program that ends at once."""


def sending(to: str, *messages: Message) -> Program:
    """A program that sends these."""

    async def program(world: World) -> None:
        for message in messages:
            await world.send(to, message)

    return program


def receiving(count: int) -> Program:
    """A program that returns the next ``count`` messages."""

    async def program(world: World) -> list[Message]:
        return [await world.receive("a message") for _ in range(count)]

    return program
