"""What needs a GPU is refused where there is none, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import launch
from testbed.errors import CapabilityError
from testbed.execution.devices import placed
from testbed.plan.build import build_plan
from testbed.scenario.load import load
from tests.end_to_end.runs import QUICKSTART


def test_a_machine_without_a_gpu_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    scenario = load(QUICKSTART, ("device.kind=cuda",))
    with pytest.raises(CapabilityError, match=r"device\.kind=cuda: device\.kind: virginia/worker0 .*write 'kind: cpu'"):
        launch.prepare(scenario, build_plan(scenario, "local"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


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
