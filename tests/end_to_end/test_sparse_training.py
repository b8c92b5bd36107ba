"""The shipped scenarios of sparse codecs train."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.runs import run_scenario

GEOMX = Path(__file__).parents[2] / "scenarios" / "geomx"


@pytest.mark.slow  # 6 s
@pytest.mark.parametrize("name", ["bi-sparse", "mpq"])
@pytest.mark.parametrize("seed", [1, 2])
def test_they_reach_their_target_and_stay_there(tmp_path: Path, name: str, seed: int) -> None:
    finished = run_scenario(tmp_path / "run", "simulate", f"seed={seed}", scenario=GEOMX / f"{name}.yaml")
    accuracies = [event["accuracy"] for event in finished.of_kind("evaluate")]
    assert max(accuracies) >= 0.95
    assert accuracies[-1] >= 0.95
