"""The GPUs of a machine: as the driver's command reports them, which node gets which, and what is refused without."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import launch
from testbed.devices.inventory import Demand, Gpu, described, gpus, place
from testbed.errors import CapabilityError
from testbed.execution.devices import placed, placed_together
from testbed.plan.build import build_plan
from testbed.plan.jobs import Job
from testbed.scenario.load import load
from tests.devices.conftest import Machine
from tests.end_to_end.runs import QUICKSTART
from tests.for_each import for_each

GIB = 1 << 30


def test_each_gpu_is_known_by_name_driver_and_memory(machine: Machine) -> None:
    machine(140_000, 90_000)
    first, second = gpus()
    assert (first.index, first.name, first.driver, first.compute_capability) == (0, "NVIDIA H200", "570.86.15", "9.0")
    assert (first.memory_bytes, first.free_bytes) == (143_771 << 20, 140_000 << 20)
    assert second.free_bytes == 90_000 << 20
    assert [gpu["name"] for gpu in described()["gpus"]] == ["NVIDIA H200"] * 2


@for_each(
    ("visible", "found"),
    [("1", [1]), ("1,0", [1, 0]), ("GPU-20000", [2]), ("", []), ("0,7,1", [0]), ("MIG-20000-aaaa", [])],
)
def test_only_visible_gpus_count_and_are_numbered_as_cuda_does(
    visible: str, found: list[int], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(1000, 2000, 3000)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.index for gpu in gpus()] == list(range(len(found)))
    assert [gpu.free_bytes for gpu in gpus()] == [(1000 * (number + 1)) << 20 for number in found]


def there(*free: int) -> list[Gpu]:
    return [Gpu(index, f"GPU-{index}", "H200", "570", 141 * GIB, size, "9.0") for index, size in enumerate(free)]


def asked(*shares: float, index: int = -1, memory: int = GIB) -> list[Demand]:
    return [Demand(f"a/worker{number}", index, share, memory) for number, share in enumerate(shares)]


def test_gpus_are_filled_by_load_and_not_by_rank() -> None:
    found = place(asked(1.0, 0.25, 0.25, 0.25, 0.5), there(100 * GIB, 100 * GIB))
    assert list(found.values()) == [0, 1, 1, 1, 1]


def test_too_little_memory_is_refused_with_sizes_and_cure() -> None:
    with pytest.raises(CapabilityError, match=r"too little GPU memory for a/worker1.*6\.0 GiB.*4\.0 GiB.*kind: cpu"):
        place(asked(1.0, 1.0, memory=3 * GIB), there(4 * GIB))


def test_an_unknown_number_is_refused_with_those_that_are_here() -> None:
    with pytest.raises(CapabilityError, match=r"device.index: a/worker0 asks for GPU 3.*GPU 0 \(H200\).*index: auto"):
        place(asked(1.0, index=3), there(GIB))


def test_a_machine_without_a_gpu_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    scenario = load(QUICKSTART, ("device.kind=cuda",))
    with pytest.raises(CapabilityError, match=r"device\.kind=cuda: device\.kind: virginia/worker0 .*write 'kind: cpu'"):
        launch.prepare(scenario, build_plan(scenario, "local"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_nodes_of_several_jobs_share_the_gpus(machine: Machine) -> None:
    machine(140_000, 140_000)
    plan = build_plan(load(QUICKSTART, ["device.kind=cuda", "data_centers[*].workers=1"], on="local"))
    plans = placed_together([Job(plan=plan), Job(plan=plan, name="b", prefix="b.")])
    numbers = [[node.device.index for node in each.with_role("worker")] for each in plans]
    assert numbers == [[0, 1, 0], [1, 0, 1]]


def test_a_cluster_is_asked_for_gpus_and_not_the_machine_of_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    scenario = load(QUICKSTART, ("device.kind=cuda",))
    plan = build_plan(scenario, "cluster")
    launch.prepare(scenario, plan, out=tmp_path / "run")
    assert placed(plan, {"virginia/global0"}) is plan, "a machine of servers needs no GPU"
    with pytest.raises(CapabilityError, match=r"tokyo/worker0 .*'nvidia-smi' finds none here"):
        placed(plan, {"tokyo/server0", "tokyo/worker0"})
