"""A minute and a half of kills; ``python -m tests.faults.soak`` goes on for ten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.soak import WHOM, Sample, grown_descriptors, judged, lasting, slope_mb_per_min, soaked


@pytest.mark.slow  # 95 s each
@pytest.mark.parametrize("policy", WHOM)
def test_it_gets_on_and_nothing_grows(tmp_path: Path, policy: str) -> None:
    ended, samples = soaked(tmp_path, policy, 90.0)
    text, good = judged(ended, lasting(samples, 90.0))
    assert good, text


def test_what_grows_is_seen() -> None:
    leaking = [Sample(t, 100_000_000 + 100_000 * t, 10 + t // 20) for t in range(100)]
    assert slope_mb_per_min(leaking) == pytest.approx(6.0) and grown_descriptors(leaking) == 4
    steady = [Sample(t, 100_000_000, 10 + t % 3) for t in range(100)]
    assert slope_mb_per_min(steady) == pytest.approx(0.0) and grown_descriptors(steady) == 0
    assert list(lasting({1: steady, 2: steady[:50], 3: steady[50:]}, 100)) == [1]
