"""Who has done its local steps waits for the slowest, however many steps those are; and no run is too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.runs import MODELLED, Simulated, run
from tests.engine.sync.test_properties import SMALL
from tests.for_each import for_each

AT_WORKER = "optimizer={kind: sgd, learning_rate: 0.01, at: worker}"
SLOW_WEST = ("device.step_time=1 s", "data_centers[west].device.speed=0.2")


@for_each(("sync", "rounds"), [("{kind: diloco, h: 40}", 1), ("{kind: hfa, k1: 5, k2: 10}", 10)])
def test_a_straggler_is_waited_for(tmp_path: Path, sync: str, rounds: int) -> None:
    done = run(tmp_path, *SMALL, AT_WORKER, f"sync={sync}", *SLOW_WEST, f"training.rounds={rounds}")
    longest_s = max(event["t"] - event["t0"] for event in done.of_kind("wait", "hub/server0"))
    assert longest_s > 100, "longer than any deadline of single steps"


def test_a_run_of_long_rounds_comes_to_its_end(tmp_path: Path) -> None:
    long = ("sync={kind: diloco, h: 50}", "device.step_time=5 s", "training.rounds=5")
    done = run(tmp_path, *SMALL, AT_WORKER, *long)
    assert _end_s(done) > 5 * 250


@pytest.mark.slow  # 4 s
def test_a_model_of_gigabytes_is_waited_for(tmp_path: Path) -> None:
    model = "training.model={kind: declared, name: gpt2-xl, buckets: 4}"
    done = run(tmp_path, *MODELLED, model, "training.rounds=10", "simulation.fold=false")
    assert _end_s(done) > 10 * 6.2e9 * 8 / 20e6


def _end_s(done: Simulated) -> float:
    return float(done.of_kind("final", "hub/worker0")[0]["t"])
