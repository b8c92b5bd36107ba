"""The first rounds of an emulated run, simulated: which runs have them, and that they are those of the simulation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from testbed.engine.roles import make_role
from testbed.errors import RunFailed
from testbed.execution import prediction
from testbed.plan.build import build_plan
from testbed.plan.model import NodePlan, Plan
from testbed.scenario.load import load
from testbed.world import Role
from tests.engine.runs import THREE_SITES, run
from tests.for_each import for_each

GEOMX = Path(__file__).parents[2] / "scenarios" / "geomx" / "hfa.yaml"


@pytest.fixture(autouse=True)
def _whatever_the_machine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "WALL_S", math.inf)


def emulated(*changes: str) -> Plan:
    return build_plan(load(THREE_SITES, changes, on="emulate"), "emulate")


def predicted(plan: Plan) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if prediction.is_predictable(plan):
        prediction.record_predicted(plan, lambda kind, **fields: found.append({"kind": kind, **fields}))
    return found


def test_they_are_those_of_a_simulation_packet_by_packet(tmp_path: Path) -> None:
    simulated = run(tmp_path, "simulation.network=emulated", "simulation.fold=false")
    rounds = {(event["node"], event["round"]): (event["t0"], event["t"]) for event in simulated.of_kind("round")}
    found = predicted(emulated())
    assert {event["kind"] for event in found} == {"predicted"}
    assert {event["round"] for event in found} == set(range(min(prediction.ROUNDS, simulated.plan.training.rounds)))
    assert len(found) == len({(event["worker"], event["round"]) for event in found})
    for event in found:
        assert (event["t0"], event["end"]) == pytest.approx(rounds[event["worker"], event["round"]])


def test_what_it_writes_ends_with_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run may be killed meanwhile, as by a second Ctrl-C."""
    folders: list[Path] = []
    monkeypatch.setattr(prediction, "is_inside", lambda: True)
    monkeypatch.setattr(prediction, "MARKER", tmp_path / "sandbox")
    monkeypatch.setattr(prediction, "_simulate", lambda plan, directory, rounds: folders.append(directory))
    predicted(emulated())
    assert [folder.parent for folder in folders] == [tmp_path]


def test_only_rounds_that_all_workers_have_done_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asynchronous workers go on at their own speed; when the slowest has done enough, all end."""
    monkeypatch.setattr(prediction, "ROUNDS", 2)
    found = predicted(emulated("sync=tap"))
    workers = sorted(node.name for node in emulated().with_role("worker"))
    assert sorted((event["worker"], event["round"]) for event in found) == [
        (name, i) for name in workers for i in (0, 1)
    ]


def test_workers_that_only_hold_the_first_values_have_no_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "ROUNDS", 1)
    plan = build_plan(load(GEOMX, on="emulate"), "emulate")
    assert {event["worker"] for event in predicted(plan)} == {node.name for node in plan.training_workers}
    assert len(predicted(plan)) < len(plan.with_role("worker"))


def test_a_slow_simulation_ends_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "WALL_S", 0.0)
    assert predicted(emulated()) == []


@for_each(
    "changes",
    [
        ("faults=[{kind: join, data_center: west, at: 500 ms}]", "recovery.on_failure=continue"),
        ("topology.links[*].jitter=5 ms",),
        ("device.pace=measured",),
        ("paradigm=gloo",),
    ],
)
def test_what_the_simulation_cannot_tell_is_not_predicted(changes: tuple[str, ...]) -> None:
    assert predicted(emulated(*changes)) == []


@for_each(("when", "rounds"), [("round: 2", 2), ("at: 600 ms", 1)])
def test_rounds_before_the_first_fault_are_predicted(when: str, rounds: int, tmp_path: Path) -> None:
    """As if there were none, in a run whose rounds take 0.3 to 0.4 s."""
    later, layers = "{kind: kill, node: west/worker0, round: 3}", "training.model.layers=2"
    found = predicted(emulated(layers, f"faults=[{later}, {{kind: kill, node: east/worker0, {when}}}]"))
    calm = [event for event in predicted(emulated(layers)) if event["round"] < rounds]
    assert found == calm
    assert {event["round"] for event in found} == set(range(rounds))


def test_a_node_that_fails_in_the_simulation_leaves_no_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated run has ended well, and keeps its result."""
    rounds = prediction.ROUNDS

    def fails_at_its_end(plan: Plan, node: NodePlan, **files: Any) -> Role:
        async def role(world: Any) -> Any:
            await make_role(plan, node, **files)(world)
            raise RunFailed("too late")

        return role

    monkeypatch.setattr("testbed.engine.roles.make_role", fails_at_its_end)
    assert emulated().training.rounds < rounds
    assert predicted(emulated()) == []


def test_runs_elsewhere_have_no_prediction() -> None:
    assert predicted(build_plan(load(THREE_SITES, (), on="local"), "local")) == []
