"""Gloo among the workers of a data centre, below their local server: real processes, on loopback and emulated links."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.devices.inventory import Gpu
from testbed.errors import CapabilityError
from testbed.execution import devices
from testbed.execution.roles import fitted
from testbed.plan.build import build_plan
from testbed.scenario.load import load
from tests.end_to_end.runs import Finished, run_scenario
from tests.end_to_end.test_three_worlds import skip_unless_possible
from tests.engine.runs import THREE_SITES
from tests.for_each import for_each

ROUNDS = 3
HIDDEN = 64
ELEMENTS = 64 * HIDDEN + HIDDEN + HIDDEN * 10 + 10
SETTINGS = (
    f"training.model={{kind: mlp, hidden: {HIDDEN}}}",
    f"training.rounds={ROUNDS}",
    "training.evaluate_every=10",
    "device.step_time=5 ms",
    "data_centers[hub].workers=3",
    "data_centers[east].workers=2",
)
GLOO = "paradigm={kind: hips, inside: gloo}"


def trained(folder: Path, back_end: str, *more: str) -> Finished:
    done = run_scenario(folder, back_end, f"run.on={back_end}", *SETTINGS, *more, scenario=THREE_SITES)
    assert done.outcome.status in ("done", "reduced"), done.outcome.message
    return done


def carried(finished: Finished, target: str) -> dict[str, int]:
    """Bytes of Gloo's connections to a node, by their source."""
    found: dict[str, int] = {}
    for event in finished.of_kind("transfer"):
        if event["message"] == "gloo" and event["node"] == target:
            assert event["tier"] == "lan"
            found[event["source"]] = found.get(event["source"], 0) + event["payload_bytes"]
    return found


@pytest.fixture(scope="module")
def by_gloo(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return trained(tmp_path_factory.mktemp("inside") / "gloo", "local", GLOO)


def test_its_bytes_are_those_of_sums_and_values_and_stay_inside(by_gloo: Finished) -> None:
    """Down, worker 1 gets a tensor with the first values and in each round; up, the first one with each round's sum."""
    dense = 4 * ELEMENTS
    towards_first, down = carried(by_gloo, "east/worker0"), carried(by_gloo, "east/worker1")
    assert towards_first.keys() == {"east/worker1"} and down.keys() == {"east/worker0"}
    assert ROUNDS * dense <= towards_first["east/worker1"] <= ROUNDS * (dense * 1.05 + 6000)
    # Gloo's reduce is a reduce-scatter, of which half goes the other way, and a gathering
    assert (ROUNDS + 1) * dense <= down["east/worker0"] <= (ROUNDS + 1) * (dense * 1.6 + 6000)
    assert carried(by_gloo, "west/worker0") == {}
    assert set(carried(by_gloo, "hub/worker1")) <= {"hub/worker0", "hub/worker2"}
    pushes = {event["source"] for event in by_gloo.of_kind("transfer") if event["message"] == "push"}
    assert {name for name in pushes if "worker" in name} == {"hub/worker0", "east/worker0", "west/worker0"}


@pytest.mark.slow  # 15 s
@pytest.mark.emulation
def test_its_bytes_cross_the_emulated_lan(by_gloo: Finished, tmp_path: Path) -> None:
    skip_unless_possible("emulate")
    emulated = trained(tmp_path / "run", "emulate", GLOO)
    assert emulated.hashes("worker") == by_gloo.hashes("worker")
    assert carried(emulated, "east/worker1")["east/worker0"] >= (ROUNDS + 1) * 4 * ELEMENTS


@pytest.mark.slow  # 10 s
def test_a_killed_worker_ends_its_group_and_all_begin_again(by_gloo: Finished, tmp_path: Path) -> None:
    faults = "faults=[{kind: kill, node: east/worker1, round: 1}]"
    again = trained(tmp_path / "run", "local", GLOO, "recovery={on_failure: restart}", faults)
    assert again.hashes("worker") == by_gloo.hashes("worker")


HITOPK = "paradigm={{kind: allreduce, algorithm: hitopk, density: 0.05, bucket: 8 KB, inside: {}}}"


@pytest.mark.slow  # 5 s
def test_parts_of_three_are_equal_at_all_workers(tmp_path: Path) -> None:
    settings = ("data_centers[*].workers=3", HITOPK.replace("density", "overlap: buckets, density"))
    ended = trained(tmp_path / "gloo", "local", *(each.format("gloo") for each in settings))
    assert len(ended.hashes("worker")) == 1


@for_each("gpus", [0, 5])
def test_nccl_needs_a_gpu_for_each_worker(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    there = [Gpu(index, f"GPU-{index}", "H200", "570", 1 << 37, 1 << 37, "9.0") for index in range(gpus)]
    monkeypatch.setattr(devices, "gpus", lambda: there)
    settings = ("run.on=local", *SETTINGS, "paradigm={kind: hips, inside: nccl}")
    with pytest.raises(
        CapabilityError, match=f"paradigm.inside: nccl .* each of 6 workers, .* has {gpus}.*inside: gloo"
    ):
        fitted(build_plan(load(THREE_SITES, settings), "local"))
