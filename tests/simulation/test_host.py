"""Nodes that share a machine's cores: who waits for a core, and for how long."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.messages import Message, MessageKind
from testbed.plan.build import build_plan
from testbed.plan.model import HostPlan, SimulationPlan
from testbed.scenario.load import loads
from testbed.simulation.clock import Clock
from testbed.simulation.host import HostModel, Thread
from testbed.simulation.run import simulate
from testbed.world import Work, World
from tests.contract.tiny import NEIGHBOUR, WORKER, tiny_plan
from tests.simulation.even import Even, M, Ran
from tests.simulation.star import FLUID
from tests.simulation.test_fold import SCENARIO

EXACT = 1e-9


def ends(cores: int, pieces: list[list[float]]) -> list[list[float]]:
    """When each process has done each of its pieces, all asked for at the start."""
    clock = Clock()
    host = HostModel(clock, HostPlan(cores=cores, message_s=0, byte_s=0))
    done: list[list[float]] = [[] for _ in pieces]
    for mine, works in zip(done, pieces, strict=True):
        thread = Thread(host)
        for work_s in works:
            thread.do(work_s, lambda mine=mine: mine.append(clock.now))  # type: ignore[misc]
    clock.run()
    return done


def test_a_process_does_one_thing_at_a_time_however_many_cores() -> None:
    assert ends(8, [[1.0, 2.0, 3.0]]) == [[1.0, 3.0, 6.0]]


def test_processes_take_turns_on_a_core() -> None:
    assert ends(1, [[1.0, 1.0], [1.0, 1.0]]) == [[1.0, 3.0], [2.0, 4.0]]


def test_as_many_work_at_once_as_there_are_cores() -> None:
    assert ends(2, [[1.0]] * 5) == [[1.0], [1.0], [2.0], [2.0], [3.0]]


def test_a_busy_process_keeps_no_second_core() -> None:
    assert ends(2, [[1.0] * 10, [1.0], [1.0]])[1:] == [[1.0], [2.0]]


def run_two(host: HostPlan, roles: dict[str, Any], directory: Path) -> dict[str, Any]:
    plan = replace(tiny_plan([WORKER, NEIGHBOUR]), simulation=SimulationPlan(host=host))
    exits = simulate(plan, lambda plan, node: roles[node.name], directory, lambda event: None, FLUID)
    assert [end.error for end in exits.values() if end.error] == []
    return {name: end.result for name, end in exits.items()}


def test_a_message_takes_a_core_at_both_ends(tmp_path: Path) -> None:
    async def sender(world: World) -> None:
        for _ in range(2):
            await world.send(NEIGHBOUR, Message(MessageKind.PUSH, parts=(torch.empty(250, device="meta"),)))

    async def receiver(world: World) -> list[float]:
        times = []
        for _ in range(2):
            await world.receive("it")
            times.append(world.now())
        return times

    host = HostPlan(cores=2, message_s=0.01, byte_s=1e-5)
    first, second = run_two(host, {WORKER: sender, NEIGHBOUR: receiver}, tmp_path)[NEIGHBOUR]
    size = (first - 0.0201) / 2e-5  # without 0.1 ms of the LAN
    assert 1050 < size < 1150  # 1 000 bytes of payload, and a header
    assert second - first == pytest.approx(
        0.01 + size * 1e-5, rel=0.01
    )  # sending the second beside receiving the first


def test_no_message_crosses_the_wan_before_the_machine_has_carried_it() -> None:
    """Rounds of two data centres: idle cores carry segments beside the transfer, busy ones hold it up."""

    def round_s(packet_us: float, cores: int) -> float:
        host = f"{{cores: {cores}, message: 1 us, stream: 1 Tbit/s, packet: {packet_us} us}}"
        even = Even(sites=2, workers=1, rounds=2, settings=(f"simulation.host={host}",))
        return Ran(even).rounds_s()[-1]

    light, segments = round_s(1.0, 4), math.ceil(M / 1448)
    assert round_s(50.0, 4) == pytest.approx(light, rel=1e-2)  # 1.6 s for each way of 3.7 s
    # one core for two sites: both ways of each, one after another
    assert round_s(200.0, 1) >= 2 * 2 * segments * 200e-6


def test_steps_really_compute_in_turn_and_are_paced_beside(tmp_path: Path) -> None:
    async def step(world: World) -> float:
        await world.compute(Work("step"), lambda: None)
        return world.now()

    roles = {WORKER: step, NEIGHBOUR: step}
    light = run_two(HostPlan(cores=1, message_s=0, byte_s=0, step_s=0.02), roles, tmp_path / "light")
    heavy = run_two(HostPlan(cores=1, message_s=0, byte_s=0, step_s=0.04), roles, tmp_path / "heavy")
    assert light == pytest.approx({WORKER: 0.05, NEIGHBOUR: 0.05})  # paced to 50 ms
    assert heavy == pytest.approx({WORKER: 0.05, NEIGHBOUR: 0.08})


def test_the_scenario_says_so_and_nothing_is_folded() -> None:
    from testbed.simulation.fold import fold

    host = "simulation.host={cores: 2, message: 200 us, stream: 4 Gbit/s, step: 5 ms, memory: 16 Gbit/s}"
    plan = build_plan(loads(SCENARIO, overrides=[host]))
    expected = HostPlan(cores=2, message_s=200e-6, byte_s=2e-9, step_s=5e-3, memory_s=5e-10)
    assert plan.simulation.host == expected
    assert fold(plan)[0] is plan
