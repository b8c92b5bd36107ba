"""A replica between two: what the server still told it, and what children push again, in whatever order they come."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import torch

from testbed.codec.table import make_codec
from testbed.engine.replica import ReplicaMail
from testbed.engine.reply import PULL_ROUND
from testbed.engine.root_store import OverwriteUpdate, RootStore
from testbed.messages import Message, MessageKind
from testbed.world import Work

KEY, SERVER, CHILD = 0, "hub/global0", "east/server0"


class Result:
    """A future, awaited turn by turn."""

    def __init__(self) -> None:
        self.value: Any = None
        self.is_done = False

    def set_result(self, value: Any) -> None:
        self.value, self.is_done = value, True

    def done(self) -> bool:
        return self.is_done

    def __await__(self) -> Any:
        while not self.is_done:
            yield self
        return self.value


class Stepping:
    """A world in which what was spawned goes on when ``turn`` says so, and a computation takes one turn."""

    node = "hub/replica0"

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.running: list[Coroutine[Any, Any, Any]] = []

    def future(self) -> Any:
        return Result()

    async def wait(self, future: Any, what: str, deadline_s: float | None = None) -> Any:
        return await future

    async def send(self, to: str, message: Message) -> None:
        self.sent.append((to, message))

    async def compute(self, work: Work, do: Callable[[], Any]) -> Any:
        later = Result()
        self.running.append(self._computed(later))
        await later
        return do()

    async def _computed(self, later: Result) -> None:
        later.set_result(None)

    def record(self, kind: str, **fields: Any) -> None:
        pass

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        self.running.append(coroutine)

    def turn(self) -> None:
        """Everybody who runs, once."""
        now, self.running = self.running, []
        for coroutine in now:
            try:
                coroutine.send(None)
                self.running.append(coroutine)
            except StopIteration:
                continue

    def settle(self) -> None:
        while self.running:
            self.turn()


class Replica:
    """``ReplicaMail``, and what it hands to the server that it would be."""

    def __init__(self) -> None:
        self.world, self.handlers, self.pushed = Stepping(), {}, []  # type: ignore[var-annotated]
        codec = make_codec("none", {}, 2, 3, 1)
        self.top = RootStore(self.world, OverwriteUpdate)  # type: ignore[arg-type]
        self.copies = ReplicaMail(self.world, self, self.top, lambda choice: codec)  # type: ignore[arg-type]
        self.copies.on(MessageKind.PUSH, self.pushed.append)
        self.told(PULL_ROUND, 0.0)
        self.world.settle()

    def on(self, kind: MessageKind, handler: Callable[[Message], None]) -> None:
        self.handlers[kind] = handler

    def told(self, round_: int, value: float) -> None:
        meta = {"members": [CHILD], "notes": {}}
        self.handlers[MessageKind.COPY](
            Message(MessageKind.COPY, KEY, round_, meta, (torch.tensor([value]),), sender=SERVER)
        )

    def push(self, round_: int) -> None:
        self.handlers[MessageKind.PUSH](
            Message(MessageKind.PUSH, KEY, round_, {}, (torch.tensor([9.0]),), sender=CHILD)
        )

    def answers(self) -> list[tuple[int, float]]:
        return [(said.round, float(said.parts[0])) for to, said in self.world.sent if said.kind is MessageKind.VALUE]


def test_a_step_that_was_told_is_answered_and_not_made_again() -> None:
    replica = Replica()
    replica.told(0, 5.0)
    replica.world.settle()
    replica.push(0)
    replica.world.settle()
    assert replica.answers() == [(0, 5.0)] and replica.pushed == []


def test_a_push_waits_for_the_step_that_is_being_made() -> None:
    replica = Replica()
    replica.told(0, 5.0)
    replica.world.turn()
    replica.push(0)
    assert replica.answers() == []
    replica.world.settle()
    assert replica.answers() == [(0, 5.0)] and replica.pushed == []


def test_the_next_round_is_the_servers_that_it_becomes() -> None:
    replica = Replica()
    replica.told(0, 5.0)
    replica.world.settle()
    replica.push(1)
    replica.world.settle()
    assert [message.round for message in replica.pushed] == [1] and replica.answers() == []


def test_last_words_that_come_too_late_change_nothing() -> None:
    """Read after children have begun to push that round here, and all of them will."""
    replica = Replica()
    replica.push(0)
    replica.told(0, 5.0)
    replica.world.settle()
    replica.push(0)
    replica.world.settle()
    assert len(replica.pushed) == 2 and replica.answers() == []
    assert [float(value) for value in replica.top.values()] == [0.0]
