"""A replica between two: what the server still told it, and what children push again, in whatever order they come."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import torch

from testbed.codec.table import make_codec
from testbed.engine.replica import Copies
from testbed.engine.reply import PULL_ROUND
from testbed.engine.root_store import OverwriteUpdate, RootStore
from testbed.engine.server import Server, ServerMembers
from testbed.messages import Message, MessageKind
from testbed.policy.sync.base import Tier
from testbed.policy.sync.fsa import Fsa
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

    def now(self) -> float:
        return 0.0

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
    """The server that it would be, what tells that of updates, and the rounds that it collects itself."""

    def __init__(self) -> None:
        self.world, self.handlers, self.collected = Stepping(), {}, []  # type: ignore[var-annotated]
        world: Any = self.world
        top = RootStore(world, OverwriteUpdate)
        peers: Any = SimpleNamespace(joined_in=lambda name: 0, begun=lambda round_: None)
        members = ServerMembers({CHILD: 1.0, "west/server0": 1.0}, peers, lambda: {CHILD: 0, "west/server0": 0})
        policy = Fsa(Tier.of(CHILD, "west/server0"), Fsa.Options())
        self.server = Server(
            world, self, policy, lambda *choice: make_codec("none", {}, 2, 3, 1), top, members, self.world.send
        )
        Copies(world, self, top, self.server)
        self.policy = policy
        column = torch.tensor([KEY]), torch.tensor([1])
        self.handlers[MessageKind.DECLARE](Message(MessageKind.DECLARE, parts=column, sender=CHILD))
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

    def waits_for_others(self, round_: int) -> bool:
        return self.policy.waiting_for(KEY, round_) == ("west/server0",)


def test_a_step_that_was_told_is_answered_and_not_made_again() -> None:
    replica = Replica()
    replica.told(0, 5.0)
    replica.world.settle()
    replica.push(0)
    replica.world.settle()
    assert replica.answers() == [(0, 5.0)] and not replica.waits_for_others(0)


def test_a_push_waits_for_the_step_that_is_being_made() -> None:
    replica = Replica()
    replica.told(0, 5.0)
    replica.world.turn()
    replica.push(0)
    assert replica.answers() == []
    replica.world.settle()
    assert replica.answers() == [(0, 5.0)] and not replica.waits_for_others(0)


def test_the_next_round_is_the_servers_that_it_becomes() -> None:
    replica = Replica()
    replica.told(0, 5.0)
    replica.world.settle()
    replica.push(1)
    replica.world.settle()
    assert replica.waits_for_others(1) and replica.answers() == []
