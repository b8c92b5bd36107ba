"""What a worker tells its servers of its own speed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from testbed.engine.collectives.exchange import AllReduceExchange
from testbed.engine.reply import ReplyControl
from testbed.engine.server_exchange import ServerExchange


class Clock:
    """A world's clock, which only the work of a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def lasting(self, seconds: float, result: Any) -> Any:
        async def work(*_: Any) -> Any:
            self.now_s += seconds
            return result

        return work


def test_a_wait_for_a_score_makes_no_step_longer() -> None:
    """ESync assigns steps by these times: a slow evaluation must not leave its worker with fewer."""
    clock = Clock()
    told: list[tuple[float, float]] = []  # seconds of a step, and of what followed the push
    exchange: Any = SimpleNamespace(
        _world=clock,
        _work=SimpleNamespace(
            catch_up=clock.lasting(0.0, None), run=clock.lasting(2.0, SimpleNamespace(loss=1.0, samples=1, steps=1))
        ),
        _assigned_steps=1,
        _note_target=clock.lasting(5.0, None),
        _synchronise=clock.lasting(3.0, [ReplyControl()]),
        _node=SimpleNamespace(name="worker"),
        _peers=SimpleNamespace(states=SimpleNamespace(done=lambda round_: None)),
        _report=lambda step_s, transfer_s: told.append((step_s, transfer_s)),
    )
    asyncio.run(ServerExchange.run(exchange, 0, lambda done: None))
    assert told == [(2.0, 3.0)]


def test_nor_does_it_without_servers() -> None:
    clock = Clock()
    exchange: Any = SimpleNamespace(
        _world=clock,
        _work=SimpleNamespace(run=clock.lasting(2.0, None)),
        _begin_all=clock.lasting(1.0, {}),
        evaluation=SimpleNamespace(before_push=clock.lasting(5.0, False)),
        _counts=SimpleNamespace(of=lambda _: 1),
        _reduction=lambda _: SimpleNamespace(step=SimpleNamespace(values=list)),
    )
    asyncio.run(AllReduceExchange._compute(exchange, 0))
    assert exchange._worked_s == 2.0
