"""Rounds of pipelines, simulated and exact, on networks that are drawn."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from emulation.exact import kernel
from testbed.cli.main import main

DRAWN = 20
WITHIN = 0.05
BEYOND = (12,)  # docs/measurements/pipelines.md

pytestmark = [
    pytest.mark.emulation,
    pytest.mark.skipif(kernel.find() is None, reason="the kernel is not built: testbed exact build"),
]


def drawn(seed: int) -> str:
    """Return a scenario with 2 to 10 workers: its network, its times and its schedule are drawn."""
    draw = random.Random(seed)
    stages = draw.choice((2, 3, 5))
    workers = draw.choice((1, 1, 2))
    names = "abcde"[:stages]
    sites = [f"{{name: {name}, workers: {workers}, central: {str(name == 'a').lower()}}}" for name in names]
    links = [
        f"{{between: [{one}, {other}], rate: {draw.choice((5, 10, 20, 50, 100))} Mbit/s, "
        f"delay: {draw.choice((1, 5, 15, 40))} ms}}"
        for one, other in pairwise(names)
    ]
    return f"""
version: 1
name: drawn-{seed}
seed: {seed}
run: {{on: simulate}}
topology: {{data_centers: [{", ".join(sites)}], links: [{", ".join(links)}]}}
training: {{model: cnn, data: digits, batch: 16, rounds: 6, evaluate_every: 6}}
device: {{step_time: {draw.choice((100, 300, 800))} ms}}
paradigm:
  kind: pipeline
  stages: {stages}
  micro_batches: {draw.choice((4, 8))}
  schedule: {draw.choice(("gpipe", "1f1b", "greedy", "zero_bubble"))}
  replicas: {draw.choice(("allreduce", "hips"))}
"""


def result_of(scenario: Path, on: str, out: Path) -> dict[str, Any]:
    assert main(["run", str(scenario), "--on", on, "--out", str(out), "--quiet"]) == 0
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    return result


@pytest.mark.slow  # 45 s each
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            seed,
            marks=pytest.mark.xfail(reason="exact runs of this drawing differ from each other by 28 %", strict=False),
        )
        if seed in BEYOND
        else seed
        for seed in range(1, DRAWN + 1)
    ],
)
def test_rounds_are_those_of_an_exact_run(seed: int, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(drawn(seed))
    simulated, exact = (result_of(scenario, on, tmp_path / on) for on in ("simulate", "exact"))
    assert simulated["parameters_sha256"] == exact["parameters_sha256"]
    assert simulated["round_time_s"] == pytest.approx(exact["round_time_s"], rel=WITHIN)
