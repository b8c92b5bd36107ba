"""Streaming DiLoCo's schedule in virtual time: closed forms where there are any, published numbers where there are."""

from __future__ import annotations

import pytest

from analysis.studies.experiments import streaming_diloco as experiment
from analysis.studies.experiments.streaming_diloco import (
    METHODS,
    RATES_GBPS,
    Method,
    ModelSize,
    due,
    intellect,
    utilisation,
)
from analysis.studies.study import published
from tests.for_each import for_each


@for_each("period", [1, 20])
def test_without_overlap_of_any_kind_it_is_computation_over_both(period: int) -> None:
    """A model of one layer: two replicas exchange all of it in bits / rate, while nobody computes."""
    size = ModelSize(1, 1e9, 0.1)
    exchange_s = 16e9 / 50e9
    expected = period * size.step_s / (period * size.step_s + exchange_s)
    assert utilisation(size, Method(period), 50.0) == pytest.approx(expected, rel=1e-4)


def test_data_parallel_hides_what_the_backward_pass_covers() -> None:
    """T = forward + one layer's backward + exchange, while the exchange is the longer one."""
    size, rate_gbps = ModelSize(24, 1e9, 0.1), 80.0
    part = size.step_s / (3 * size.layers - 1)
    expected = size.step_s / (size.layers * part + 2 * part + 16 / rate_gbps)
    assert utilisation(size, Method(1), rate_gbps) == pytest.approx(expected, rel=1e-3)


def test_every_layer_is_due_once_in_a_period() -> None:
    method = METHODS["streaming"]
    for size in experiment.SIZES.values():
        steps = [due(method, size.layers, step) for step in range(method.period)]
        assert sorted(layer for layers in steps for layer in layers) == list(range(size.layers))
        assert {len(layers) for layers in steps} == {0, method.fragment}


def test_each_method_computes_more_of_the_time_than_the_one_before() -> None:
    shares = [utilisation(experiment.SIZES["1B"], method, 6.0) for method in METHODS.values()]
    assert shares == sorted(shares)
    assert shares[0] < 0.1
    assert shares[-1] > 0.99


FIRST, *OTHERS = published("diloco-util")


@pytest.mark.parametrize(
    "each",
    [FIRST, *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)],  # 2 s each
    ids=lambda each: each.series,
)
def test_intellect_1(each: object) -> None:
    assert intellect(each.x) == pytest.approx(each.y, abs=0.01)  # type: ignore[attr-defined]


@for_each("method", list(METHODS))
def test_the_published_rate_for_95_per_cent(method: str) -> None:
    """Utilisation is below the target so many of the paper's rates below the published one, and not so many above."""
    (wanted,) = [each for each in published(experiment.FIGURE) if each.series == f"1B: {method}" and each.x == 0.95]
    place = experiment.place_of(wanted.y)
    below, above = RATES_GBPS[place - experiment.STEPS - 1], RATES_GBPS[place + experiment.STEPS]
    size = experiment.SIZES["1B"]
    assert utilisation(size, METHODS[method], below) < 0.95 <= utilisation(size, METHODS[method], above)
