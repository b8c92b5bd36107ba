"""Deployments over real raylets, each a machine of its own in namespaces."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cluster.raylets import needs_raylets, raylets
from tests.end_to_end.runs import QUICKSTART, run_scenario

SITES = ("virginia", "frankfurt", "tokyo")
SHORT = ("training.rounds=6", "training.evaluate_every=5")


@needs_raylets
@pytest.mark.slow  # 40 s
def test_the_quickstart_over_three_machines_ends_with_the_bits_of_the_simulator(tmp_path: Path) -> None:
    (simulated,) = run_scenario(tmp_path / "simulated", "simulate", *SHORT).hashes("worker")
    run = tmp_path / "deployed"
    command = [sys.executable, "-m", "testbed.cli.main", "run", str(QUICKSTART), "--on", "cluster", "--out", str(run),
               "--quiet", *(word for setting in SHORT for word in ("--set", setting))]  # fmt: skip
    with raylets(workers=3, labels=[f"dc={name}" for name in SITES]) as cluster:
        output = cluster.head.run([*command, "--set", f"cluster.address={cluster.address}"], 120)
        assert "done" in output
        assert [machine.disk() for machine in cluster.workers] == [set()] * 3, "an agent has left files"
    result = json.loads((run / "result.json").read_text())
    assert result["parameters_sha256"] == simulated
    machines = json.loads((run / "manifest.json").read_text())["capabilities"]["cluster"]["machines"]
    assert [each["address"] for each in machines] == [machine.address for machine in cluster.workers]
    assert {each["hostname"] for each in machines} == {"machine1", "machine2", "machine3"}
