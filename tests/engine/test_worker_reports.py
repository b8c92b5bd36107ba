"""What a worker tells its servers of its own speed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from testbed.engine.collectives.worker import AllReduceWorker
from testbed.engine.reply import ReplyControl
from testbed.engine.worker import Worker


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
    lasting = clock.lasting
    told: list[tuple[float, float]] = []
    worker: Any = SimpleNamespace(
        _world=SimpleNamespace(now=clock.now, record=lambda *_, **fields: None), _learner=None, _notes={},
        _work=SimpleNamespace(run=lasting(2.0, SimpleNamespace(loss=1.0, samples=1, steps=1))),
        _evaluation=SimpleNamespace(
            without=lambda _: None, after_round=lambda _: None, before_push=lasting(5.0, False)
        ),
        _membership=SimpleNamespace(lost=()), _synchronise=lasting(3.0, [ReplyControl()]), _handover=None,
        _report=lambda result, work_s, transfer_s: told.append((work_s, transfer_s)),
    )  # fmt: skip
    asyncio.run(Worker._round(worker, 0, 1))
    assert told == [(2.0, 3.0)]


def test_nor_does_it_without_servers() -> None:
    clock = Clock()
    worker: Any = SimpleNamespace(
        _world=clock, _work=SimpleNamespace(run=clock.lasting(2.0, None)), _begin_all=clock.lasting(1.0, {}),
        _evaluation=SimpleNamespace(before_push=clock.lasting(5.0, False)), _counts=SimpleNamespace(of=lambda _: 1),
        _exchange=lambda _: SimpleNamespace(step=SimpleNamespace(values=list)),
    )  # fmt: skip
    asyncio.run(AllReduceWorker._compute(worker, 0))
    assert worker._worked_s == 2.0
