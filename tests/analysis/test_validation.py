"""The simulator against the emulation: what is made of the two times of each point."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.validation import ValidationPoint, fill_of, ranking, reproduced, tau_b, verdict


def points(*errors: float, technique: str = "fsa") -> list[ValidationPoint]:
    return [
        ValidationPoint(technique, 5e6 * (i + 1), 0.02, 2.0, 2.0 * (1 + error), i) for i, error in enumerate(errors)
    ]


def test_errors_are_of_the_simulated_against_the_emulated_time() -> None:
    found = verdict(points(-0.1, 0.02, 0.3))
    assert found.median == pytest.approx(0.1)
    assert found.worst == pytest.approx(0.3)
    assert found.percentile_95 == pytest.approx(0.28)
    assert (found.points, found.tau) == (3, None)


def test_the_ranking_is_of_techniques_at_one_place() -> None:
    def at(rate: float, *times: tuple[float, float]) -> list[ValidationPoint]:
        return [
            ValidationPoint(f"t{i}", rate, 0.01, emulated, simulated) for i, (emulated, simulated) in enumerate(times)
        ]

    same = at(1e6, (1.0, 0.5), (2.0, 1.0), (3.0, 1.5))
    turned = at(2e6, (1.0, 3.0), (2.0, 2.0), (3.0, 1.0))
    assert ranking(same) == pytest.approx(1.0)
    assert ranking(turned) == pytest.approx(-1.0)
    assert ranking(same + turned) == pytest.approx(0.0)


def test_without_a_resolution_tau_is_scipys() -> None:
    from scipy.stats import kendalltau

    generator = np.random.default_rng(1)
    for _ in range(20):
        one, other = generator.integers(1, 8, 12).astype(float), generator.integers(1, 8, 12).astype(float)
        assert tau_b(one, other) == pytest.approx(kendalltau(one, other).statistic)


def test_times_that_cannot_be_told_apart_are_ties() -> None:
    """Of six pairs, two are tied in both worlds, and the other four agree."""
    one, other = np.array([1.0, 1.004, 2.0, 2.008]), np.array([1.003, 1.0, 2.008, 2.0])
    assert tau_b(one, other) == pytest.approx((4 - 2) / 6)
    assert tau_b(one, other, 0.005) == pytest.approx(1.0)
    assert tau_b(one, other, 0.001) == pytest.approx((4 - 2) / 6), "these can be told apart"
    # tied in one world only: neither agrees nor disagrees
    assert tau_b(np.array([1.0, 1.001, 3.0]), np.array([1.0, 2.0, 3.0]), 0.005) == pytest.approx(2 / math.sqrt(2 * 3))
    assert tau_b(np.array([1.0, 1.001]), np.array([1.0, 2.0]), 0.005) is None
    points = [ValidationPoint(f"t{i}", 1e6, 0.01, *times) for i, times in enumerate(zip(one, other, strict=True))]
    assert verdict(points).tau == pytest.approx(1 / 3) and verdict(points).tau_resolved == pytest.approx(1.0)


def test_the_emulation_is_held_against_itself() -> None:
    once = ValidationPoint("fsa", 5e6, 0.02, 2.0, 1.5)
    twice = [
        ValidationPoint(name, 5e6, 0.02, 2.0, 1.5, repeats_s=times)
        for name, times in (("fsa", (2.0, 2.2)), ("hfa", (3.0, 2.1)), ("bsp", (1.0, 1.0)))
    ]
    found = reproduced([once, *twice])
    assert found is not None and found.points == 3
    assert found.worst == pytest.approx(0.3) and found.median == pytest.approx(0.1)
    assert found.tau == pytest.approx(1 / 3)
    assert reproduced([once]) is None


def test_a_round_is_counted_in_what_path_and_queue_hold() -> None:
    ways = {"a": {"up": 10_000_000, "down": 4}, "b": {"up": 3, "down": 2_000_000}, "c": {"up": 1_000_000, "down": 0}}
    result = {"wan_payload_bytes": ways, "rounds": 10}
    assert fill_of(result, 60_000, 40_000) == pytest.approx(2.0), "the centre sends more, over more links"


def test_what_is_outside_the_models_claim_is_told() -> None:
    assert [point.valid for point in points(0.0, 0.0, 0.0)] == [True, False, True]
    assert "1.0 times" in points(0.0, 0.0)[1].why


def test_an_emulation_that_does_not_vouch_for_its_times_is_no_measure() -> None:
    busy = ValidationPoint("fsa", 5e6, 0.02, 2.0, 1.5, 0.0, "all cores were busy (> 95%) in 57% of the samples")
    assert not busy.valid
    assert busy.why == busy.caveat
    assert ValidationPoint("fsa", 5e6, 0.02, 2.0, 1.5).why == ""
