"""Whole runs in virtual time: FSA against its closed form, traces, samples, deadlocks, determinism, and the end."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import Interrupted, RunFailed, WaitTimeout
from testbed.messages import Message, MessageKind
from testbed.plan.model import NodePlan, Plan
from testbed.results.events import read
from testbed.settings.series import Series
from testbed.simulation.run import SimulatedNodeExit, SimulationOptions, simulate
from testbed.simulation.waits import Deadlock
from testbed.world import Role, Work, World
from tests.contract.tiny import NEIGHBOUR, REMOTE, WORKER, tiny_plan
from tests.for_each import for_each
from tests.simulation.star import FLUID, HUB, Shape, heterogeneous, read_events, star_plan, star_roles

EXACT = 1e-9
SIZE = 10_000_000


def run_star(
    shape: Shape, directory: Path, rounds: int = 1, options: SimulationOptions = FLUID
) -> dict[str, SimulatedNodeExit]:
    exits = simulate(star_plan(shape), star_roles(SIZE, rounds), directory, lambda event: None, options)
    assert [exit_.error for exit_ in exits.values() if exit_.error] == []
    return exits


def size_of(directory: Path, target: str) -> int:
    """Bytes on the wire of the first message that a node received."""
    event = next(event for event in read_events(directory, target) if event["kind"] == "transfer")
    return int(event["payload_bytes"] + event["header_bytes"])


# ---- closed forms ---------------------------------------------------------------------------------------------------


@for_each(
    ("name", "shape"),
    [
        ("WAN-bound", Shape(4, 2)),
        ("server-bound", Shape(8, 2, wan_bps=1e9, hub_bps=2e9)),
        ("LAN-bound", Shape(3, 16, lan_bps=1e9, wan_bps=1e9)),
        ("alone", Shape(1, 1)),
    ],
)
def test_an_fsa_round_takes_its_closed_form(name: str, shape: Shape, tmp_path: Path) -> None:
    """T = T_c + 2[ε + M·W/C] + 2δ + M·max(1/U, D/I) + M·max(1/V, D/E), each message with its own header."""
    exits = run_star(shape, tmp_path)
    push_1, push_2 = size_of(tmp_path, "d0000/server0"), size_of(tmp_path, HUB)
    value_2 = next(
        event["payload_bytes"] + event["header_bytes"]
        for event in read_events(tmp_path, "d0000/server0")
        if event["kind"] == "transfer" and event["source"] == HUB
    )
    value_1 = size_of(tmp_path, "d0000/worker00")
    lan = shape.workers * 8 / shape.lan_bps
    wan = max(8 / shape.wan_bps, shape.sites * 8 / shape.hub_bps)  # type: ignore[operator]
    expected = (
        shape.step_s
        + 2 * shape.lan_delay_s
        + (push_1 + value_1) * lan  # type: ignore[operator]
        + 2 * shape.wan_delay_s
        + (push_2 + value_2) * wan  # type: ignore[operator]
    )
    assert exits["d0000/worker00"].at_s == pytest.approx(expected, rel=EXACT)
    assert len({exit_.at_s for name, exit_ in exits.items() if "worker" in name}) == 1, "identical ones end together"


def test_the_goodput_of_a_link_is_its_frames_less_their_headers(tmp_path: Path) -> None:
    plan = tiny_plan([WORKER, REMOTE])
    options = SimulationOptions(compute=FLUID.compute)

    def make_role(plan: Plan, node: NodePlan) -> Role:
        return star_sender if node.name == WORKER else star_receiver

    simulate(plan, make_role, tmp_path, lambda event: None, options)
    (event,) = [event for event in read_events(tmp_path, REMOTE) if event["kind"] == "transfer"]
    bytes_ = event["payload_bytes"] + event["header_bytes"]
    # 100 Mbit/s of frames of 1514 bytes, each with 1448 of payload; RTT 10.4 ms; three for the set-up
    at_line_rate = bytes_ * 8 / (100e6 * 1448 / 1514)
    slow_start = event["t"] - event["t0"] - 3.5 * 0.0104 - at_line_rate
    assert 0 < slow_start < 4 * 0.0104


async def star_sender(world: World) -> None:
    import torch

    await world.send(REMOTE, Message(MessageKind.PUSH, parts=(torch.empty(2_500_000, device="meta"),)))


async def star_receiver(world: World) -> None:
    await world.receive("it")


def test_a_message_costs_its_receiver_time_and_they_take_turns(tmp_path: Path) -> None:
    import dataclasses

    costly = dataclasses.replace(FLUID, compute=dataclasses.replace(FLUID.compute, message_cost_s=0.01))
    plan = tiny_plan([WORKER, NEIGHBOUR, REMOTE])

    async def sender(world: World) -> None:
        await world.send(NEIGHBOUR, Message(MessageKind.PUSH))
        await world.send(NEIGHBOUR, Message(MessageKind.PUSH))

    async def receiver(world: World) -> list[float]:
        times = []
        for _ in range(2):
            await world.receive("it")
            times.append(world.now())
        return times

    async def idle(world: World) -> None:
        pass

    roles = {WORKER: sender, NEIGHBOUR: receiver, REMOTE: idle}
    exits = simulate(plan, lambda plan, node: roles[node.name], tmp_path, lambda event: None, costly)
    first, second = exits[NEIGHBOUR].result
    assert first == pytest.approx(0.01 + 0.0001, abs=1e-5)
    assert second - first == pytest.approx(0.01, rel=EXACT)


def test_pieces_of_work_of_one_node_take_turns(tmp_path: Path) -> None:
    async def program(world: World) -> tuple[list[float], float]:
        started: list[float] = []
        tasks = [
            world.spawn(world.compute(Work("step"), lambda: started.append(world.now())), f"step {n}") for n in range(3)
        ]
        for task in tasks:
            await world.wait(task, "a step")
        return started, world.now()

    exits = simulate(tiny_plan([WORKER]), lambda plan, node: program, tmp_path, lambda event: None)  # type: ignore
    started, end = exits[WORKER].result
    assert started == pytest.approx([0, 0.05, 0.1])
    assert end == pytest.approx(0.15)


def test_work_and_waits_are_recorded_with_all_their_fields(tmp_path: Path) -> None:
    async def program(world: World) -> None:
        await world.compute(Work("step"), lambda: None)
        step = world.spawn(world.compute(Work("step", 7, part="forward 0"), lambda: None), "a step")
        await world.wait(step, "the step")

    simulate(tiny_plan([WORKER]), lambda plan, node: program, tmp_path, lambda event: None)
    work = {"node": WORKER, "work": "step", "modelled_s": 0.05, "real_s": 0.05, "overrun": False}
    assert [event for event in read(tmp_path / "events", WORKER) if event["kind"] in ("compute", "wait")] == [
        {"t": 0.05, "kind": "compute", "t0": 0.0, "round": 0, **work},
        {"t": 0.1, "kind": "compute", "t0": 0.05, "round": 7, "part": "forward 0", **work},
        {"t": 0.1, "kind": "wait", "node": WORKER, "t0": 0.05, "waiting_for": "the step"},
    ]


# ---- traces and samples ---------------------------------------------------------------------------------------------


def test_a_trace_counts_from_the_start_of_training_and_repeats(tmp_path: Path) -> None:
    """A site of one worker: 100 Mbit/s in the first half of every second, hardly anything in the other half."""
    trace = Series(times_s=(0.0, 0.5), values=(100e6, 1e3), period_s=1.0)
    shape = Shape(1, 1, trace=trace, wan_delay_s=0.001, lan_delay_s=0.0, step_s=0.0)
    exits = run_star(shape, tmp_path)
    wire, lan_s = size_of(tmp_path, HUB), size_of(tmp_path, "d0000/server0") * 8 / 10e9
    sending_s = wire * 8 / 100e6  # 0.8 s of sending at full rate, of which 0.5 in the first second
    arrived = 1 + (sending_s - (0.5 - lan_s) - 0.5 * 1e3 / 100e6) + 0.001
    (event,) = [event for event in read_events(tmp_path, HUB) if event["kind"] == "transfer"]
    assert event["t"] == pytest.approx(arrived, abs=1e-6)
    assert exits[HUB].error is None
    changes = [event for event in read_events(tmp_path, "links") if event["kind"] == "replay"]
    assert [(c["t"], c["value"]) for c in changes if c["link"] == "d0000>hub"][:4] == [
        (0, 100e6),
        (0.5, 1e3),
        (1, 100e6),
        (1.5, 1e3),
    ]


def test_link_samples_count_frames_of_what_was_sent(tmp_path: Path) -> None:
    shape = Shape(2, 1)
    options = SimulationOptions(compute=FLUID.compute)
    run_star(shape, tmp_path, 2, options)
    samples = [e for e in read_events(tmp_path, "links") if e["kind"] == "link" and e["link"] == "d0001>hub"]
    sent = sum(
        event["payload_bytes"] + event["header_bytes"]
        for event in read_events(tmp_path, HUB)
        if event["kind"] == "transfer" and event["source"] == "d0001/server0"
    )
    assert samples[-1]["bytes"] == pytest.approx(sent * 1514 / 1448, rel=1e-6)
    assert {sample["configured_bps"] for sample in samples} == {100e6}
    times = [sample["t"] for sample in samples]
    assert times == sorted(times)
    assert max(b - a for a, b in itertools.pairwise(times)) <= 0.5 + 1e-6
    rates = [
        (b["bytes"] - a["bytes"]) * 8 / (b["t"] - a["t"]) for a, b in itertools.pairwise(samples) if b["t"] > a["t"]
    ]
    assert max(rates) <= 100e6 * (1 + 1e-6)


# ---- the end --------------------------------------------------------------------------------------------------------


def test_when_nobody_can_advance_the_wait_graph_is_the_message(tmp_path: Path) -> None:
    plan = tiny_plan([WORKER, REMOTE], step_deadline_s=1e6)

    async def program(world: World) -> None:
        await world.sleep(1.5)
        await world.receive(f"word from the other of {world.node}")

    exits = simulate(plan, lambda plan, node: program, tmp_path, lambda event: None)
    error = exits[WORKER].error
    assert isinstance(error, Deadlock)
    assert isinstance(error, WaitTimeout)
    assert error.exit_code == 5
    assert (error.node, error.since_s) == (WORKER, 1.5)
    for node in (WORKER, REMOTE):
        assert f"{node} waits for word from the other of {node} since t = 1.500 s" in str(error)
    assert isinstance(exits[REMOTE].error, RunFailed)
    (event,) = [event for event in read_events(tmp_path, WORKER) if event["kind"] == "error"]
    assert event["cause"] == "Deadlock"


def test_a_run_without_any_deadline_ends_all_the_same(tmp_path: Path) -> None:
    plan = tiny_plan([WORKER, REMOTE], step_deadline_s=float("inf"))

    async def program(world: World) -> None:
        await world.receive("godot")

    exits = simulate(plan, lambda plan, node: program, tmp_path, lambda event: None)
    assert all(isinstance(exit_.error, Deadlock) for exit_ in exits.values())


def test_a_deadline_is_no_deadlock_while_others_work(tmp_path: Path) -> None:
    plan = tiny_plan([WORKER, REMOTE])

    async def waits(world: World) -> None:
        await world.receive("godot", 1.0)

    async def works(world: World) -> None:
        await world.sleep(5.0)

    roles: dict[str, Any] = {WORKER: waits, REMOTE: works}
    exits = simulate(plan, lambda plan, node: roles[node.name], tmp_path, lambda event: None)
    assert type(exits[WORKER].error) is WaitTimeout
    assert exits[WORKER].at_s == 1.0


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    plan = tiny_plan([WORKER, REMOTE])

    async def done(world: World) -> str:
        return "done"

    async def program(world: World) -> None:
        world.record("round", t0=0.0, round=1, loss=0.5, samples=1)
        await world.sleep(1.0)

        def press() -> None:
            raise KeyboardInterrupt

        await world.compute(Work("step"), press)

    roles: dict[str, Any] = {WORKER: program, REMOTE: done}
    exits = simulate(plan, lambda plan, node: roles[node.name], tmp_path, lambda event: None)
    assert exits[REMOTE].result == "done"
    assert isinstance(exits[WORKER].error, Interrupted)
    assert [event["kind"] for event in read_events(tmp_path, WORKER)] == ["round"]


def test_the_first_failure_stops_the_others_and_tasks_with_them(tmp_path: Path) -> None:
    plan = tiny_plan([WORKER, REMOTE])
    cleaned = []

    async def fails(world: World) -> None:
        await world.sleep(1.0)
        raise ValueError("broken")

    async def endless(world: World) -> None:
        async def task() -> None:
            try:
                while True:
                    await world.sleep(0.3)
            finally:
                cleaned.append(world.node)

        world.spawn(task(), "task")
        await world.receive("nothing")

    roles: dict[str, Any] = {WORKER: fails, REMOTE: endless}
    exits = simulate(plan, lambda plan, node: roles[node.name], tmp_path, lambda event: None)
    assert isinstance(exits[WORKER].error, ValueError)
    assert isinstance(exits[REMOTE].error, RunFailed)
    assert "broken" in str(exits[REMOTE].error)
    assert cleaned == [REMOTE]


def test_a_sender_is_held_back_while_too_much_is_queued(tmp_path: Path) -> None:
    import torch

    async def sender(world: World) -> list[float]:
        accepted = []
        for _ in range(8):
            await world.send(REMOTE, Message(MessageKind.PUSH, parts=(torch.empty(5_000_000, device="meta"),)))
            accepted.append(world.now())
        return accepted

    async def receiver(world: World) -> None:
        for _ in range(8):
            await world.receive("it")

    roles: dict[str, Any] = {WORKER: sender, REMOTE: receiver}
    plan = tiny_plan([WORKER, REMOTE])
    exits = simulate(plan, lambda plan, node: roles[node.name], tmp_path, lambda event: None, FLUID)
    accepted = exits[WORKER].result
    # 20 MB take 1.6 s; one is on the wire and three (60 MB of 64 MiB) wait, so the fifth is accepted when one has left
    assert accepted[:4] == [0, 0, 0, 0]
    assert accepted[4:] == pytest.approx([1.6, 3.2, 4.8, 6.4], rel=1e-3)


def test_the_watcher_sees_rounds_and_status(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    simulate(star_plan(heterogeneous(30, 10)), star_roles(SIZE, 2), tmp_path, seen.append)
    assert sum(event["kind"] == "round" for event in seen) == 600
    status = [event for event in seen if event["kind"] == "status" and event["node"] == "simulation"]
    for event in status:
        assert event["rate"] >= 0
        assert event["simulated_s"] == event["t"]
    assert {"train", "round"} <= {event["kind"] for event in seen}


def test_every_node_reports_its_bytes_when_it_ends(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    simulate(star_plan(heterogeneous(3, 2)), star_roles(SIZE, 2), tmp_path, seen.append)
    last = {event["node"]: event["wan_up_bytes"] for event in seen if event["kind"] == "status"}
    away = [bytes_ for node, bytes_ in last.items() if node.endswith("/server0")]
    assert away and away == [2 * SIZE] * len(away), last


# ---- determinism ----------------------------------------------------------------------------------------------------


def digest(directory: Path) -> str:
    """Of all logs."""
    return hashlib.sha256(repr(list(read(directory / "events"))).encode()).hexdigest()


_CHILD = """
import sys
from pathlib import Path
from tests.simulation.star import heterogeneous, star_plan, star_roles
from testbed.simulation.run import simulate
exits = simulate(star_plan(heterogeneous(8, 4)), star_roles(2_000_000, 3), Path(sys.argv[1]), lambda event: None)
print(repr(max(exit_.at_s for exit_ in exits.values())))
"""


@pytest.mark.slow  # 8 s
def test_equal_plans_give_equal_bits_in_any_process(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path / "there")],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    exits = simulate(star_plan(heterogeneous(8, 4)), star_roles(2_000_000, 3), tmp_path / "here", lambda event: None)
    assert child.stdout == f"{max(exit_.at_s for exit_ in exits.values())!r}\n"
    assert digest(tmp_path / "there") == digest(tmp_path / "here")


def test_numba_gives_the_same_run(tmp_path: Path) -> None:
    plan = star_plan(heterogeneous(8, 4))
    ends = []
    for compiled in (False, True):
        directory = tmp_path / str(compiled)
        options = SimulationOptions(compiled=compiled)
        exits = simulate(plan, star_roles(2_000_000, 3), directory, lambda event: None, options)
        ends.append(({name: exit_.at_s for name, exit_ in exits.items()}, digest(directory)))
    assert ends[0] == ends[1]
