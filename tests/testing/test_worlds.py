"""Techniques from outside through a scenario, by the command: equal bits and the declared steps in every world."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.cli.main import main
from testbed.results.events import read

SCENARIO = Path(__file__).parent / "all_worlds.yaml"
OTHERS = {
    "warm-up": (),
    "codec and order": (
        "sync=fsa",
        "optimizer={kind: ./examples/sign_step.py:SignStep, learning_rate: 0.002}",
        "codec=./examples/sign_sgd.py:SignSgd",
        "order={kind: ./examples/biases_first.py:BiasesFirst, piece: 2 KB}",
    ),
    "overlay": ("sync=fsa", "optimizer=sgd", "overlay={tier1: star, tier2: ./examples/chain.py:Chain}"),
}


def end_of(settings: tuple[str, ...], on: str, out: Path) -> tuple[str, set[tuple[int, ...]]]:
    """Run, and return the hash of the parameters, and each worker's steps by round."""
    sets = [part for setting in settings for part in ("--set", setting)]
    command = ["run", str(SCENARIO), "--on", on, "--out", str(out), "--quiet", "--allow-code", *sets]
    if (code := main(command)) == 3:
        pytest.skip("this machine cannot emulate")
    assert code == 0
    steps: dict[str, list[int]] = {}
    for event in read(out / "events"):
        if event["kind"] == "round":
            steps.setdefault(event["node"], []).append(event["steps"])
    return json.loads((out / "result.json").read_text())["parameters_sha256"], set(map(tuple, steps.values()))


@pytest.mark.slow  # 40 s
@pytest.mark.emulation
@pytest.mark.parametrize("case", OTHERS)
def test_equal_bits_simulated_local_and_emulated(case: str, tmp_path: Path) -> None:
    ends = [end_of(OTHERS[case], on, tmp_path / on) for on in ("simulate", "local", "emulate")]
    assert ends[0] == ends[1] == ends[2]
    assert ends[0][1] == {(5,) * 6 + (3, 3) if case == "warm-up" else (1,) * 8}
