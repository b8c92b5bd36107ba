"""One scenario per algorithm, one seed: the same bits simulated, on loopback and emulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.runs import run_scenario
from tests.end_to_end.test_three_worlds import skip_unless_possible

SCENARIOS = Path(__file__).parents[3] / "scenarios" / "sync"
SHORT = ("training.iterations=4", "training.evaluate_every=2", "training.target_accuracy=null")
EXTRA = {"esync": ("sync={kind: esync, fixed_steps: 2}",)}


@pytest.mark.parametrize("back_end", ["local", pytest.param("emulate", marks=pytest.mark.emulation)])
@pytest.mark.parametrize("name", ["fsa", "hfa", "bsp", "esync", "diloco"])
def test_the_same_bits_in_every_world(name: str, back_end: str, tmp_path: Path) -> None:
    skip_unless_possible(back_end)
    overrides = (*SHORT, *EXTRA.get(name, ()))
    scenario = SCENARIOS / f"{name}.yaml"
    simulated = run_scenario(tmp_path / "simulate", "simulate", *overrides, scenario=scenario)
    real = run_scenario(tmp_path / back_end, back_end, *overrides, scenario=scenario)
    for run in (simulated, real):
        assert run.outcome.status == "done", run.outcome.message
    assert real.hashes("worker") == simulated.hashes("worker")
    assert real.hashes("global_server") == simulated.hashes("global_server")


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_scenario_runs(path: Path, tmp_path: Path) -> None:
    done = run_scenario(tmp_path / "run", "simulate", *SHORT, scenario=path)
    assert done.outcome.status == "done", done.outcome.message
