"""Training steps that overlap in virtual time are computed at the same time, with the same bits and times."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.execution import host
from testbed.plan.build import build_plan
from testbed.results.events import read
from testbed.scenario.load import load
from testbed.simulation.run import simulate
from testbed.world import Role, Work, World
from tests.contract.tiny import NEIGHBOUR, WORKER, tiny_plan
from tests.end_to_end.runs import QUICKSTART
from tests.for_each import for_each

LARGE_S = 0.02  # of a step that is worth a thread
LARGE = ["training.model={kind: mlp, hidden: 8192}", "training.batch=200"]  # likewise
WAIT_S = 60.0  # for a thread that never comes; on a slow machine one comes late


def simulated(directory: Path, roles: dict[str, Role], threads: int = 2) -> dict[str, Any]:
    exits = simulate(
        tiny_plan(roles), lambda plan, node: roles[node.name], directory, lambda event: None, threads=threads
    )
    return {name: exit_.error or exit_.result for name, exit_ in exits.items()}


async def large_steps(world: World) -> None:
    """Make the first steps, which show that steps are worth a thread."""

    def step() -> None:
        begin_s = time.thread_time()
        while time.thread_time() - begin_s < LARGE_S:
            pass

    for _ in range(3):
        await world.compute(Work("step"), step)


def test_two_steps_that_overlap_compute_at_the_same_time(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    async def role(world: World) -> int:
        await large_steps(world)
        return await world.compute(Work("step"), lambda: both.wait(WAIT_S))

    assert sorted(simulated(tmp_path, {WORKER: role, NEIGHBOUR: role}).values()) == [0, 1]


def test_what_changes_a_model_waits_for_the_step_that_reads_it(tmp_path: Path) -> None:
    begun, order = threading.Event(), []

    def step() -> None:
        begun.set()
        threading.Event().wait(0.05)  # so that a change which does not wait comes first
        order.append("step")

    async def change(world: World) -> None:
        await world.sleep(1e-6)  # the step has begun
        await world.compute(Work("copy"), lambda: order.append("change"))

    async def role(world: World) -> None:
        await large_steps(world)
        changed = world.spawn(change(world), "change")
        await world.compute(Work("step"), step)
        await world.wait(changed, "the change")

    simulated(tmp_path, {WORKER: role})
    assert begun.is_set()
    assert order == ["step", "change"]


@for_each("threads", [1, 2])
def test_a_step_fails_when_its_time_has_passed(threads: int, tmp_path: Path) -> None:
    def step() -> None:
        raise ArithmeticError("no number")

    async def role(world: World) -> None:
        try:
            await world.compute(Work("step"), step)
        finally:
            world.record("failed")

    assert isinstance(simulated(tmp_path, {WORKER: role}, threads)[WORKER], ArithmeticError)
    (failed,) = (event for event in read(tmp_path / "events", WORKER) if event["kind"] == "failed")
    (node,) = tiny_plan([WORKER]).nodes
    assert failed["t"] == pytest.approx(node.device.step_time_s)


@for_each(
    "settings",
    [[], ["technique=diloco"], ["paradigm={kind: gossip, algorithm: adpsgd, graph: ring}"]],
)
def test_a_training_is_the_same_with_any_number_of_cores(settings: list[str], tmp_path: Path) -> None:
    plan = build_plan(
        load(
            QUICKSTART,
            ["simulation.network=flows", "training.rounds=3", "training.evaluate_every=3", *LARGE, *settings],
        ),
        "simulate",
    )

    def events(cores: int) -> list[dict[str, Any]]:
        directory = tmp_path / str(cores)
        assert host.attempt(plan, directory, lambda event: None, cores=cores).status == "done"
        return list(read(directory / "events"))

    assert events(3) == events(1)
