"""The part of the contract of ``testbed.world.World`` about who serves: handed every message until it says no."""

from __future__ import annotations

import pytest

from testbed.messages import Message, MessageKind
from testbed.world import World
from tests.contract.programs import RunWorlds
from tests.contract.tiny import REMOTE, WORKER


class ServeContract:
    """A part of ``WorldContract``."""

    def test_who_serves_is_handed_everything_in_order_until_it_says_no(self, run_worlds: RunWorlds) -> None:
        async def server(world: World) -> tuple[list[int], int]:
            keys: list[int] = []

            def handle(message: Message) -> bool:
                keys.append(message.key)
                return message.key < 5

            await world.sleep(0.05)  # some have come by now
            await world.serve(handle)
            return keys, (await world.receive("the one after the end")).key

        async def sender(world: World) -> None:
            for key in range(7):
                await world.send(REMOTE, Message(MessageKind.PUSH, key=key))
                await world.sleep(0.02 if key > 2 else 0.0)

        assert run_worlds({WORKER: sender, REMOTE: server})[REMOTE] == ([0, 1, 2, 3, 4, 5], 6)

    def test_what_a_handler_raises_is_raised_to_who_serves(self, run_worlds: RunWorlds) -> None:
        async def server(world: World) -> str:
            def handle(message: Message) -> bool:
                raise ValueError(f"cannot take {message.key}")

            with pytest.raises(ValueError, match="cannot take 3") as caught:
                await world.serve(handle)
            return str(caught.value)

        async def sender(world: World) -> None:
            await world.send(REMOTE, Message(MessageKind.PUSH, key=3))

        assert run_worlds({WORKER: sender, REMOTE: server})[REMOTE] == "cannot take 3"
