"""HALoS' servers are equal to a reference that reads like the authors' rules, whatever the order of events."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from testbed.engine.aggregation import AggregatedPush
from testbed.engine.keys import KeyPush, declared
from testbed.engine.local_model import LocalModelStore
from testbed.engine.reply import ReplyControl, Value
from testbed.policy.events import Push, WorkerReport
from testbed.policy.sync.base import Member, Tier, WorkerDevice
from testbed.policy.sync.halos import Halos
from testbed.results import tables
from testbed.training.optimizers import KeyOptimizer
from tests.engine.runs import run
from tests.methods.problem import TOLERANCE, Problem, apart

OPTIONS = Halos.Options(updates=3, local_buffer=2, local_learning_rate=0.3, outer_buffer=2, outer_learning_rate=0.4)
SITES, EVENTS, RATE = 3, 300, 0.05


class DelayedNesterov:
    """Liu et al., 2024, with c = 0, as HALoS' code has it."""

    def __init__(self, theta: Tensor, rate: float, beta: float, buffer: int) -> None:
        self.theta, self.rate, self.beta, self.buffer = theta.clone(), rate, beta, buffer
        self.momentum, self.total, self.count = torch.zeros_like(theta), torch.zeros_like(theta), 0

    def step(self, change: Tensor) -> None:
        self.total += change
        self.count += 1
        if self.count % self.buffer == 0:
            self.momentum = self.beta * self.momentum + self.total / self.buffer
            self.theta -= self.rate * self.beta * self.momentum
            self.total.zero_()
        self.theta -= self.rate * change / self.buffer


class Reference:
    """Local servers, each with a model, what it was after the last merging, and updates since; and the global one."""

    def __init__(self, first: Tensor) -> None:
        o = OPTIONS
        local = (o.local_learning_rate, o.local_momentum, o.local_buffer)
        self.sites = [DelayedNesterov(first, *local) for _ in range(SITES)]
        self.merged = [first.clone() for _ in range(SITES)]
        self.updates = [0] * SITES
        self.sent: dict[int, Tensor] = {}
        self.world = DelayedNesterov(first, o.outer_learning_rate, o.outer_momentum, o.outer_buffer)

    def push(self, site: int, change: Tensor) -> Tensor:
        self.sites[site].step(change)
        self.updates[site] += 1
        if self.updates[site] >= OPTIONS.updates and site not in self.sent:
            self.sent[site] = self.merged[site] - self.sites[site].theta
        return self.sites[site].theta

    def answer(self, site: int) -> None:
        self.world.step(self.sent.pop(site))
        mine = self.sites[site]
        mine.theta = (1 - OPTIONS.merging) * mine.theta + OPTIONS.merging * self.world.theta
        self.merged[site], self.updates[site] = mine.theta.clone(), 0


class Surroundings:
    """A world in which work takes no time, and the global server, which answers when it is told to."""

    def __init__(self, first: Tensor) -> None:
        self.first = first
        self.sent: list[Tensor] = []
        self.answered: asyncio.Future[Value] = asyncio.Future()

    def future(self) -> Any:
        return asyncio.Future()

    async def wait(self, future: Any, waiting_for: str) -> Any:
        return await future

    async def declare(self, *keys: object) -> None:
        pass

    async def pull(self, keys: list[int], newest: bool) -> list[Tensor]:
        return [self.first.clone()]

    async def compute(self, work: object, function: Any) -> Any:
        return function()

    def spawn(self, coroutine: Any, name: str) -> Any:
        return asyncio.ensure_future(coroutine)

    async def push(self, push: KeyPush) -> None:
        self.sent.append(push.tensor)

    async def value(self, key: int, round_: int) -> Value:
        return await self.answered


async def both(problem: Problem) -> tuple[Tensor, Tensor]:
    """Return what the global models of ours and of the reference are, after equal events in a random order."""
    reference = Reference(problem.first.flatten())
    around = [Surroundings(problem.first.flatten()) for _ in range(SITES)]
    model = Halos.local_model(OPTIONS)
    ours = [LocalModelStore(each, each, model) for each in around]  # type: ignore[arg-type]
    for store in ours:
        await store.declare(declared([problem.first.numel()]))
        await store.pull(0)
    world = KeyOptimizer(*Halos.outer_optimizer(OPTIONS), problem.first.flatten())
    local = [[problem.first.flatten() for _ in range(2)] for _ in range(SITES)]
    draw = random.Random(5)
    for number in range(EVENTS):
        site, worker = draw.randrange(SITES), draw.randrange(2)
        if around[site].sent and draw.random() < 0.4:
            reference.answer(site)
            world.step(around[site].sent.pop())
            around[site].answered.set_result(Value(world.value.clone(), ReplyControl()))
            around[site].answered = asyncio.Future()
            await asyncio.sleep(0)
        change = RATE * problem.gradient(worker, local[site][worker].view(problem.shape)).flatten()
        value = await ours[site].apply(AggregatedPush(0, number, change, ("worker",)))
        await asyncio.sleep(0)
        assert apart(value.tensor, reference.push(site, change)) < TOLERANCE
        local[site][worker] = value.tensor.clone()
    return world.value, reference.world.theta


def test_servers_are_equal_to_the_reference_over_three_hundred_events() -> None:
    problem = Problem(6, 7)
    ours, reference = asyncio.run(both(problem))
    assert apart(ours, reference) < TOLERANCE
    assert problem.loss(ours.view(problem.shape)) < 0.6 * problem.loss(problem.first)


def test_slow_workers_make_fewer_steps_by_what_was_measured() -> None:
    workers = tuple(WorkerDevice(name, step_s) for name, step_s in (("a", 0.1), ("b", 0.2)))
    policy = Halos(Tier(tuple(Member(each.name, (each,)) for each in workers), number=1, top=False), Halos.Options(h=8))
    *_, reply = policy.on_push(Push("b", 0, 0, reports={"b": WorkerReport(0.25, 1.0)}))
    assert reply.steps == {"b": 4}  # 8 · 0.1 / 0.25, rounded up: of the modelled speed until a has reported
    *_, reply = policy.on_push(Push("a", 0, 0, reports={"a": WorkerReport(0.05, 1.0)}))
    assert reply.steps == {"a": 8}
    *_, reply = policy.on_push(Push("b", 0, 1, reports={"b": WorkerReport(0.25, 1.0)}))
    assert reply.steps == {"b": 2}


def test_the_table_of_updates_says_whose_each_is_and_how_stale(tmp_path: Path) -> None:
    """``member``, with which staleness can be told by local server; of several contributions together there is none."""
    slow = "topology.data_centers[2].device={step_time: 200 ms}"
    run(tmp_path / "halos", "sync={kind: halos, h: 1, updates: 2}", "training.rounds=8", slow)
    updates = tables.read(tmp_path / "halos", ["updates"])["updates"]
    mean = updates[updates["key"] == 0].groupby("member")["staleness"].mean()
    assert [*mean.index] == ["east/server0", "hub/server0", "west/server0"]
    assert mean["west/server0"] > mean.drop("west/server0").max() > 0
    run(tmp_path / "fsa", "sync=fsa", "training.rounds=2")
    assert tables.read(tmp_path / "fsa", ["updates"])["updates"]["member"].isna().all()
