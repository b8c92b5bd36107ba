"""One scenario per algorithm, one seed: the same bits simulated, on loopback and emulated."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.end_to_end.runs import Finished, run_scenario
from tests.end_to_end.test_three_worlds import skip_unless_possible
from tests.for_each import for_each

SCENARIOS = Path(__file__).parents[3] / "scenarios" / "sync"
SHORT = (
    "training.rounds=2",
    "training.evaluate_every=2",
    "training.target_accuracy=null",
    "training.model={kind: mlp, hidden: 32}",
)
EXTRA = {"esync": ("sync={kind: esync, fixed_steps: 2}",)}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Finished]:
    """Each algorithm is simulated once, however many worlds it is held against."""

    @cache
    def run(name: str) -> Finished:
        return _run(tmp_path_factory.mktemp(name) / "simulate", "simulate", name)

    return run


EMULATED = [pytest.mark.emulation, pytest.mark.slow]  # 13 s each; FSA's are in tests/end_to_end/test_three_worlds.py


@pytest.mark.sample(1)  # of 2, which take 10 s
@pytest.mark.parametrize(
    ("name", "back_end"),
    [
        *((name, "local") for name in ("hfa", "esync")),
        *(pytest.param(name, "local", marks=pytest.mark.slow) for name in ("bsp", "diloco")),  # 6 s each
        *(pytest.param(name, "emulate", marks=EMULATED) for name in ("hfa", "diloco")),
    ],
)
def test_the_same_bits_in_every_world(
    name: str, back_end: str, tmp_path: Path, simulated: Callable[[str], Finished]
) -> None:
    skip_unless_possible(back_end)
    real = _run(tmp_path / back_end, back_end, name)
    assert real.hashes("worker") == simulated(name).hashes("worker")
    assert real.hashes("global_server") == simulated(name).hashes("global_server")


def _run(directory: Path, back_end: str, name: str) -> Finished:
    overrides = (*SHORT, *EXTRA.get(name, ()))
    done = run_scenario(directory, back_end, *overrides, scenario=SCENARIOS / f"{name}.yaml")
    assert done.outcome.status == "done", done.outcome.message
    return done


@for_each("path", sorted(SCENARIOS.glob("*.yaml")))
def test_every_scenario_runs(path: Path, tmp_path: Path, simulated: Callable[[str], Finished]) -> None:
    if path.stem in EXTRA:
        done = run_scenario(tmp_path / "run", "simulate", *SHORT, scenario=path)
        assert done.outcome.status == "done", done.outcome.message
    else:
        simulated(path.stem)
