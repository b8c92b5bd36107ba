"""Best-effort messages in virtual time: residual capacity, loss on the way, loss in queues, the same every time."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from testbed.best_effort import datagrams
from testbed.messages import Message, MessageKind
from testbed.plan.model import FaultPlan, Plan
from testbed.settings.run import Recovery
from testbed.settings.series import Series
from testbed.simulation.best_effort import FlowCarrier, Item
from testbed.simulation.clock import Clock
from testbed.simulation.flows.network import FlowNetwork
from testbed.simulation.run import SimulationOptions, simulate
from testbed.simulation.tcp_model import TcpModel
from testbed.world import World
from tests.contract.tiny import NEIGHBOUR, REMOTE, WAN_DELAY_S, WAN_RATE_BPS, WORKER, tiny_plan
from tests.simulation.links import path_over, wan_link

BLOCKS = 400


def block(number: int, channel: int = 1) -> Message:
    return Message(MessageKind.BLOCK, number, parts=(torch.ones(1024),), channel=channel)


def with_links(plan: Plan, **values: Any) -> Plan:
    links = tuple(dataclasses.replace(link, **values) for link in plan.network.links)
    return dataclasses.replace(plan, network=dataclasses.replace(plan.network, links=links))


def arrivals(
    plan: Plan, directory: Path, programs: dict[str, Any], until_s: float = 5.0
) -> list[tuple[float, Message]]:
    """What REMOTE receives by then, and when."""

    async def receiver(world: World) -> list[tuple[float, Message]]:
        got: list[tuple[float, Message]] = []

        async def take() -> None:
            while True:
                message = await world.receive("anything", 1e6)
                got.append((world.now(), message))

        world.spawn(take(), "take")
        await world.sleep(until_s)
        return got

    everybody = {**programs, REMOTE: receiver}
    options = SimulationOptions(tcp=TcpModel(slow_start=False))
    exits = simulate(plan, lambda plan, node: everybody[node.name], directory, lambda event: None, options)
    result: list[tuple[float, Message]] = exits[REMOTE].result
    return result


async def blocks_only(world: World) -> None:
    for number in range(BLOCKS):
        await world.send(REMOTE, block(number))


def test_alone_it_goes_at_the_pace(tmp_path: Path) -> None:
    plan = dataclasses.replace(tiny_plan([WORKER, REMOTE]), back_end="simulate")
    got = arrivals(plan, tmp_path, {WORKER: blocks_only})
    bits = (BLOCKS - 1) * datagrams(got[0][1])[1] * 8
    assert len(got) == BLOCKS
    assert got[-1][0] - got[0][0] == pytest.approx(bits / (0.97 * WAN_RATE_BPS), rel=1e-3)
    assert got[0][0] == pytest.approx(WAN_DELAY_S, abs=0.002)


def test_a_block_is_lost_with_any_of_its_datagrams(tmp_path: Path) -> None:
    plan = dataclasses.replace(tiny_plan([WORKER, REMOTE]), back_end="simulate")
    got = arrivals(with_links(plan, loss=0.1), tmp_path, {WORKER: blocks_only})
    share = 0.9 ** datagrams(got[0][1])[0]
    assert datagrams(got[0][1])[0] == 3
    assert len(got) == pytest.approx(share * BLOCKS, abs=4 * (BLOCKS * share * (1 - share)) ** 0.5)
    keys = [message.key for _, message in got]
    assert keys == sorted(set(keys))
    again = arrivals(with_links(plan, loss=0.1), tmp_path / "again", {WORKER: blocks_only})
    assert [message.key for _, message in again] == keys, "the same seed loses the same blocks"
    other = dataclasses.replace(with_links(plan, loss=0.1), seed=2)
    assert [message.key for _, message in arrivals(other, tmp_path / "other", {WORKER: blocks_only})] != keys


def test_reliable_traffic_takes_what_it_wants_and_a_full_queue_loses(tmp_path: Path) -> None:
    """A neighbour's bulk over the same link is not slowed; of the blocks, the queue holds some and the rest is lost."""

    async def bulk(world: World) -> None:
        await world.send(REMOTE, Message(MessageKind.PUSH, 10_000, parts=(torch.ones(1_000_000),)))

    plan = dataclasses.replace(tiny_plan([WORKER, NEIGHBOUR, REMOTE]), back_end="simulate")
    plan = with_links(plan, queue_bytes=50_000)
    (alone,) = arrivals(plan, tmp_path / "alone", {WORKER: bulk, NEIGHBOUR: _nothing})
    got = arrivals(plan, tmp_path / "both", {NEIGHBOUR: bulk, WORKER: _late_blocks})
    bulk_s = next(at_s for at_s, message in got if message.key == 10_000)
    assert bulk_s == pytest.approx(alone[0], rel=1e-3)
    kept = 50_000 // datagrams(block(0))[1]
    blocks = [at_s for at_s, message in got if message.key < BLOCKS]
    assert kept - 1 <= len(blocks) <= kept + 2
    assert sum(at_s < bulk_s for at_s in blocks) <= 1


async def _nothing(world: World) -> None:
    pass


async def _late_blocks(world: World) -> None:
    await world.sleep(0.06)  # 400 blocks take 0.14 s, the bulk 0.33 s
    await blocks_only(world)


def with_outage(plan: Plan, begin_s: float, end_s: float) -> Plan:
    return with_links(plan, state_trace=Series(times_s=(0.0, begin_s, end_s), values=(1.0, 0.0, 1.0)))


def test_what_leaves_while_the_path_is_down_is_lost(tmp_path: Path) -> None:
    """400 blocks leave within 0.14 s; the path is down for 50 ms of it."""

    async def trained(world: World) -> None:
        world.record("train", rounds=1, workers=1)
        await blocks_only(world)

    plan = dataclasses.replace(tiny_plan([WORKER, REMOTE]), back_end="simulate")
    got = arrivals(with_outage(plan, 0.05, 0.1), tmp_path, {WORKER: trained})
    assert len(got) == pytest.approx(BLOCKS * (1 - 0.05 / 0.14), rel=0.05)
    assert not [at_s for at_s, _ in got if 0.05 + WAN_DELAY_S + 0.001 < at_s < 0.1 + WAN_DELAY_S]


def test_what_waits_when_the_path_goes_down_is_lost(tmp_path: Path) -> None:
    """Behind a neighbour's bulk of 0.33 s the queue holds a dozen of them, which leave from 0.06 to 0.2 s."""

    async def bulk(world: World) -> None:
        world.record("train", rounds=1, workers=1)
        await world.send(REMOTE, Message(MessageKind.PUSH, 10_000, parts=(torch.ones(1_000_000),)))

    plan = dataclasses.replace(tiny_plan([WORKER, NEIGHBOUR, REMOTE]), back_end="simulate")
    plan = with_outage(with_links(plan, queue_bytes=50_000), 0.15, 0.25)
    keys = [message.key for _, message in arrivals(plan, tmp_path, {NEIGHBOUR: bulk, WORKER: _late_blocks})]
    assert keys == [10_000]


def test_a_stopped_process_sends_no_more_than_its_kernel_has(tmp_path: Path) -> None:
    """A process that is stopped from 0.1 to 1.1 s: the rest follows then. If killed, it never does."""

    async def sender(world: World, message: Message, count: int) -> None:
        world.record("train")
        for _ in range(count):
            await world.send(REMOTE, message)
        await world.sleep(2.0)

    bulk = Message(MessageKind.PUSH, parts=(torch.ones(1_000_000),))
    stopped = FaultPlan(kind="pause", targets=(WORKER,), at_s=0.1, for_s=1.0)
    calm = dataclasses.replace(tiny_plan([WORKER, REMOTE]), back_end="simulate")
    plan = dataclasses.replace(calm, faults=(stopped,))
    killed = FaultPlan(kind="kill", targets=(WORKER,), at_s=0.1)
    recovery = Recovery(on_failure="continue")
    for message, count in ((bulk, 1), (block(0), BLOCKS)):
        programs = {WORKER: lambda world, message=message, count=count: sender(world, message, count)}
        went_on, held = (arrivals(each, tmp_path, programs) for each in (calm, plan))
        lost = arrivals(dataclasses.replace(calm, faults=(killed,), recovery=recovery), tmp_path, programs)
        assert len(held) == len(went_on) == count
        assert went_on[-1][0] > 0.14
        assert held[-1][0] == pytest.approx(went_on[-1][0] + 1.0, abs=0.02)
        assert not any(0.13 < at_s < 1.1 for at_s, _ in held)
        assert not any(message.kind is not MessageKind.LOST and at_s > 0.13 for at_s, message in lost)


def test_what_waited_when_the_path_went_down_takes_neither_room_nor_time_afterwards() -> None:
    clock, arrived = Clock(), list[tuple[Any, float]]()
    network, path = FlowNetwork(clock, [100.0]), path_over(wan_link(queue_bytes=300))
    beside = network.flow_class((0,))
    carrier = FlowCarrier(
        clock, network, path, beside, 1.0, Random(1), lambda envelope: arrived.append((envelope, clock.now))
    )

    def change(up: bool) -> None:
        path.up, path.outages = up, path.outages + (not up)
        network.set_capacity(0, 100.0 if up else 1e-6)

    for number in range(3):
        carrier.carry(Item(number, 100, 1), 1)  # type: ignore[arg-type]
    clock.at(0.5, lambda _: change(False))
    clock.at(1.0, lambda _: change(True))
    clock.at(1.0, lambda _: carrier.carry(Item("new", 100, 1), 1))  # type: ignore[arg-type]
    clock.finish()
    assert arrived == [("new", pytest.approx(2.5))], "half of the first one was still to be served"
