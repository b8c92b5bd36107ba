"""A node's place in the run: which of the scheduler's answers is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from testbed.engine.membership import Membership
from testbed.engine.scheduler import Scheduler
from testbed.engine.state_mail import StateMail
from testbed.errors import NodeLost
from testbed.messages import Message, MessageKind
from testbed.plan.build import build_plan
from testbed.scenario.load import loads

SCENARIO = """
version: 1
name: two
seed: 1
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]
training: {model: mlp, data: digits, rounds: 1, evaluate_every: 1}
"""


class World:
    """Stamps what is sent with the time 5 s, and waits without a deadline."""

    node = "b/worker0"

    def future(self) -> Any:
        return asyncio.get_running_loop().create_future()

    async def send(self, _to: str, message: Message) -> None:
        message.sent_at_s = 5.0

    async def wait(self, future: Any, _what: str, _deadline_s: float) -> Any:
        return await future


def test_an_answer_to_the_process_in_whose_place_it_is_does_not_count() -> None:
    async def joined() -> tuple[bool, int]:
        read: dict[MessageKind, Callable[[Message], None]] = {}
        inbox = Mock()
        inbox.on = read.__setitem__
        membership = Membership(World(), inbox, build_plan(loads(SCENARIO), "simulate"))  # type: ignore[arg-type]
        joining = asyncio.create_task(membership.join())
        await asyncio.sleep(0)
        read[MessageKind.READY](Message(MessageKind.READY, meta={"registered_s": 4.0, "epoch": 1}))
        await asyncio.sleep(0)
        early = joining.done()
        read[MessageKind.READY](Message(MessageKind.READY, meta={"registered_s": 5.0, "epoch": 2}))
        await joining
        return early, membership.newest_epoch

    assert asyncio.run(joined()) == (False, 2)


def test_a_barrier_waits_for_no_script_that_has_ended_and_whose_node_is_lost() -> None:
    """The barrier no longer waits for a node that is lost, so its ended script is no reason to end the run."""
    world = Mock(now=lambda: 1.0, send=AsyncMock())

    async def met() -> None:
        scheduler = Scheduler(build_plan(loads(SCENARIO + "recovery: {on_failure: continue}\n"), "simulate"))
        for message in (
            Message(MessageKind.DONE, sender="b/worker0"),
            Message(MessageKind.LOST, meta={"why": "it was killed"}, sender="b/worker0"),
            Message(MessageKind.BARRIER, meta={"name": "script", "size": 2}, sender="a/worker0"),
        ):
            await scheduler._handle(world, message)

    asyncio.run(met())
    to, message = world.send.await_args.args
    assert (to, message.kind) == ("a/worker0", MessageKind.RELEASE)


def test_a_request_of_a_lost_process_gets_no_answer() -> None:
    read: dict[MessageKind, Callable[[Message], None]] = {}
    sent: list[str] = []
    inbox, world = Mock(), Mock()
    inbox.on = read.__setitem__
    world.spawn = lambda coroutine, name: sent.append(name) or coroutine.close()
    states = StateMail(world, inbox)
    read[MessageKind.STATE](Message(MessageKind.STATE, 1, 4, sender="b/worker0"))
    states.drop(["b/worker0"])
    read[MessageKind.STATE](Message(MessageKind.STATE, 1, 5, sender="b/worker0"))  # of its next process
    states.done(5)
    assert sent == ["the state after round 5 for b/worker0"]


def world_with(*kinds: MessageKind) -> Mock:
    """A world in which messages of these kinds come from one worker."""
    messages = [Message(kind, meta={"why": "it was killed"}, sender="b/worker0") for kind in kinds]
    return Mock(receive=AsyncMock(side_effect=messages))


def test_a_node_that_is_lost_before_all_have_registered_is_named() -> None:
    scheduler = Scheduler(build_plan(loads(SCENARIO), "simulate"))
    with pytest.raises(NodeLost, match=r"b/worker0 is lost \(it was killed\), and no run begins before"):
        asyncio.run(scheduler(world_with(MessageKind.LOST)))


def test_a_node_may_register_twice_before_all_have() -> None:
    """Its process was lost, and the next one was faster than the news of that."""
    scheduler = Scheduler(build_plan(loads(SCENARIO), "simulate"))
    with pytest.raises(NodeLost, match="b/worker0 is lost"):
        asyncio.run(scheduler(world_with(MessageKind.REGISTER, MessageKind.REGISTER, MessageKind.LOST)))
