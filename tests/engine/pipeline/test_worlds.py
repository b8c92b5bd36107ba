"""A pipeline ends with the same bits simulated, in real processes, and behind emulated links."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.cli.main import main

SCENARIO = Path(__file__).parents[3] / "scenarios" / "paradigms" / "pipeline.yaml"
SHORT = ("training.rounds=4", "training.evaluate_every=2", "training.target_accuracy=null", "device.step_time=200 ms")
CASES = {
    "greedy": (),
    "zero bubble with servers": ("paradigm.replicas=hips", "paradigm.stages=2", "paradigm.schedule=zero_bubble"),
    "local steps and codecs": ("sync={kind: diloco, h: 2}", "paradigm.activations=fp16", "paradigm.schedule=gpipe"),
}


def end_of(settings: tuple[str, ...], on: str, out: Path) -> str:
    sets = [part for setting in (*SHORT, *settings) for part in ("--set", setting)]
    code = main(["run", str(SCENARIO), "--on", on, "--out", str(out), "--quiet", *sets])
    if code == 3:
        pytest.skip("this machine cannot emulate")
    assert code == 0
    result = json.loads((out / "result.json").read_text())
    assert result["parameters_agree"]
    return str(result["parameters_sha256"])


@pytest.mark.slow  # 15 s
def test_a_lost_stage_is_made_again_from_the_last_checkpoint(tmp_path: Path) -> None:
    kept = "checkpoint.every=2"
    lost = ("recovery.on_failure=restart", "faults=[{kind: kill, node: tokyo/worker0, at: 1 s}]")
    whole, again = (end_of((kept, *more), "simulate", tmp_path / str(len(more))) for more in ((), lost))
    assert whole == again
    result = json.loads((tmp_path / "2" / "result.json").read_text())
    assert result["faults"]["restarts"] == 1


@pytest.mark.slow  # 60 s
@pytest.mark.emulation
@pytest.mark.parametrize("case", CASES)
def test_equal_bits_simulated_local_and_emulated(case: str, tmp_path: Path) -> None:
    ends = [end_of(CASES[case], on, tmp_path / on) for on in ("simulate", "local", "emulate")]
    assert ends[0] == ends[1] == ends[2]
