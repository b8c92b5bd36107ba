"""A node that is lost while the others go on: when they hear of it, and what becomes of what waits for it."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch

from testbed.messages import Message, MessageKind
from testbed.plan.model import FaultPlan, Plan
from testbed.settings.run import Recovery
from testbed.simulation.run import simulate
from testbed.world import World
from tests.contract.tiny import REMOTE, WAN_DELAY_S, WORKER, tiny_plan
from tests.for_each import for_each
from tests.simulation.test_best_effort import BLOCKS, block, with_outage


async def _forget(world: World) -> None:
    await world.sleep(1.0)
    world.forget(WORKER, world.now())


async def _receiver(world: World) -> None:
    await world.sleep(2.0)


def _losing_plan() -> Plan:
    """A run that continues without the worker, which is killed at 0.5 s."""
    return dataclasses.replace(
        tiny_plan([REMOTE, WORKER]),
        back_end="simulate",
        recovery=Recovery(on_failure="continue"),
        faults=(FaultPlan(kind="kill", targets=(WORKER,), at_s=0.5),),
    )


@for_each("network", ["tcp", "emulated"])
@for_each(("cut", "ends_s"), [(False, 0.5 + WAN_DELAY_S), (True, 1.0)])
def test_nothing_waits_for_a_lost_node(cut: bool, ends_s: float, network: str, tmp_path: Path) -> None:
    """Of 320 MB, 64 MiB may wait; the others would for 20 s. So it is where a connection ends, and if it cannot."""

    async def sender(world: World) -> float:
        world.record("train")
        for number in range(BLOCKS):
            await world.send(WORKER, block(number))
        world.spawn(_forget(world), "forget")
        for _ in range(4):
            await world.send(WORKER, Message(MessageKind.PUSH, parts=(torch.empty(20_000_000, device="meta"),)))
        await world.send(WORKER, block(0))
        await world.drain(WORKER)
        return world.now()

    plan = _losing_plan()
    plan = dataclasses.replace(plan, simulation=dataclasses.replace(plan.simulation, network=network))
    plan = with_outage(plan, 0.4, 9.0) if cut else plan
    programs = {REMOTE: sender, WORKER: _receiver}
    exits = simulate(plan, lambda plan, node: programs[node.name], tmp_path, lambda event: None)
    assert exits[REMOTE].error is None
    assert exits[REMOTE].result == pytest.approx(ends_s, abs=1e-3)


def test_what_the_kernel_has_taken_does_not_wait_either(tmp_path: Path) -> None:
    """The links are cut as the first message ends, so that the kernel has taken the second one, of more than 64 MiB."""

    async def sender(world: World) -> float:
        world.record("train")
        world.spawn(_forget(world), "forget")
        for elements in (1_080_000, 20_000_000, 20_000_000, 20_000_000):
            await world.send(WORKER, Message(MessageKind.PUSH, parts=(torch.empty(elements, device="meta"),)))
        return world.now()

    programs = {REMOTE: sender, WORKER: _receiver}
    exits = simulate(
        with_outage(_losing_plan(), 0.4, 90.0), lambda plan, node: programs[node.name], tmp_path, lambda event: None
    )
    assert exits[REMOTE].error is None
    assert exits[REMOTE].result == pytest.approx(1.0, abs=1e-3)


@for_each(
    ("up_s", "heard_s"),
    [(0.25, 0.3), (0.7, 0.7), (20.0, 1.2)],
)
def test_a_loss_is_heard_when_the_end_of_a_connection_gets_through(up_s: float, heard_s: float, tmp_path: Path) -> None:
    async def listener(world: World) -> float:
        world.record("train")
        await world.receive("a loss", 10.0)
        return world.now()

    async def victim(world: World) -> None:
        await world.sleep(30.0)

    plan = dataclasses.replace(
        tiny_plan([REMOTE, WORKER], dead_after_s=1.0),
        back_end="simulate",
        recovery=Recovery(on_failure="continue"),
        faults=(FaultPlan(kind="kill", targets=(WORKER,), at_s=0.3),),
    )
    programs = {REMOTE: listener, WORKER: victim}
    exits = simulate(with_outage(plan, 0.2, up_s), lambda plan, node: programs[node.name], tmp_path, lambda event: None)
    assert exits[REMOTE].result == pytest.approx(heard_s + WAN_DELAY_S, abs=1e-3)


def test_the_others_wait_for_a_lost_node_that_comes_back(tmp_path: Path) -> None:
    """Without a deadline: nothing but the end of the fault can let any of them advance."""
    lives: list[float] = []

    async def listener(world: World) -> list[MessageKind]:
        world.record("train")
        return [(await world.receive("anything", math.inf)).kind for _ in range(2)]

    async def victim(world: World) -> None:
        lives.append(world.now())
        if len(lives) == 1:
            await world.receive("nothing", math.inf)
        await world.send(REMOTE, Message(MessageKind.PUSH))

    plan = dataclasses.replace(
        tiny_plan([REMOTE, WORKER]),
        back_end="simulate",
        recovery=Recovery(on_failure="continue"),
        faults=(FaultPlan(kind="kill", targets=(WORKER,), at_s=0.3, for_s=1.0),),
    )
    programs = {REMOTE: listener, WORKER: victim}
    exits = simulate(plan, lambda plan, node: programs[node.name], tmp_path, lambda event: None)
    assert exits[REMOTE].error is None
    assert exits[REMOTE].result == [MessageKind.LOST, MessageKind.PUSH]
    assert lives == [0.0, pytest.approx(1.3)]
