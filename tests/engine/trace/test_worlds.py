"""One role plays a trace in every world: the same messages, and the times that links and device model say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from emulation.exact import kernel
from testbed import api
from testbed.scenario.load import load
from tests.end_to_end.runs import Finished, run_scenario
from tests.job_trace.shipped import FOLDER, FORWARD_S, MICRO_BATCHES, OPTIMIZER_S

SCENARIO = FOLDER / "two-stages.yaml"
ROUNDS = "training.rounds=2"


def messages(finished: Finished) -> Counter[tuple[str, str, int]]:
    found = [each for each in finished.of_kind("transfer") if each["message"] == "collective"]
    return Counter((each["source"], each["target"], each["payload_bytes"]) for each in found)


def round_s(finished: Finished) -> float:
    found = [event["t"] - event["t0"] for event in finished.of_kind("round")]
    return sum(found) / len(found)


def test_processes_send_what_the_virtual_world_does(tmp_path: Path) -> None:
    simulated = run_scenario(tmp_path / "simulated", "simulate", ROUNDS, "paradigm.segments=1", scenario=SCENARIO)
    local = run_scenario(tmp_path / "local", "local", ROUNDS, "paradigm.segments=1", scenario=SCENARIO)
    assert local.outcome.status == simulated.outcome.status == "done"
    assert messages(local) == messages(simulated)
    for finished in (local, simulated):
        work = [each for each in finished.of_kind("compute") if each["work"] == "step" and each["round"] == 0]
        assert sorted(each["modelled_s"] for each in work) == pytest.approx(
            [OPTIMIZER_S] * 4 + [FORWARD_S] * 2 * MICRO_BATCHES * 2 + [2 * FORWARD_S] * 2 * MICRO_BATCHES * 2, abs=2e-6
        )


@pytest.mark.slow  # 20 s
@pytest.mark.skipif(kernel.find() is None, reason="the kernel is not built: testbed exact build")
def test_a_simulated_round_takes_as_long_as_an_exact_one(tmp_path: Path) -> None:
    exact = api.run(load(SCENARIO, (ROUNDS,)), on="exact", out=tmp_path / "exact", progress=False)
    simulated = run_scenario(tmp_path / "simulated", "simulate", ROUNDS, scenario=SCENARIO, network=None)
    assert exact.result is not None
    assert exact.result["round_time_s"] == pytest.approx(round_s(simulated), rel=0.05)
