from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from testbed.codec.blocks import blocks
from testbed.codec.memory import Select
from testbed.codec.options import MsTopKOptions
from testbed.codec.selectors import sweep
from testbed.codec.selectors.chance import RandomK
from testbed.codec.selectors.mstopk import PublishedMsTopk
from testbed.codec.selectors.sources import (
    Difference,
    Feedback,
    Floats,
    Indices,
    Momentum,
    NonFinite,
    ValueSource,
    check_k,
)
from testbed.codec.selectors.sweep import SMALL, SampleAndSweep, largest_by_bisection
from testbed.codec.table import make_codec
from testbed.policy.collective.options import AllReduceOptions
from tests.codec import inputs
from tests.codec.reference import FullSort, Numbers, TorchTopk
from tests.for_each import for_each


class Bisection:
    """The search that a sweep goes back to, from the start."""

    def __call__(self, source: ValueSource, k: int) -> Indices:
        check_k(k, source.size)
        for part in blocks(source.size):
            source.update(part)
        return largest_by_bisection(source, k)


EXACT = {"sweep": SampleAndSweep, "bisection": Bisection, "full sort": FullSort}
SMALL_SIZES = (1, 2, 3, 127, 128, 129)
LARGE_SIZES = (SMALL - 1, SMALL, SMALL + 1, 300_007)


def right(numbers: Floats, k: int) -> Indices:
    """By definition: stable sort by falling magnitude, the first k, without zeros, in ascending order."""
    first = order(numbers)[:k]
    return np.sort(first[numbers[first] != 0])


def order(numbers: Floats) -> Indices:
    return np.argsort(-np.abs(numbers), kind="stable")


def some_k(size: int) -> list[int]:
    return sorted({0, 1, size // 1000, size // 100, size // 2, size - 1, size} - {-1})


@for_each("name", inputs.FINITE)
@for_each("selector", EXACT)
def test_small_tensors_are_chosen_as_by_a_sort(selector: str, name: str) -> None:
    for size in SMALL_SIZES:
        numbers = inputs.make(name, size)
        for k in some_k(size):
            assert EXACT[selector]()(Numbers(numbers), k).tolist() == right(numbers, k).tolist(), (size, k)


@pytest.mark.sample(16)  # of 96, which take 5 s
@pytest.mark.parametrize("size", LARGE_SIZES)
@pytest.mark.parametrize("name", inputs.FINITE)
@pytest.mark.parametrize("selector", ["sweep", "bisection"])
def test_large_tensors_are_chosen_as_by_a_sort(selector: str, name: str, size: int) -> None:
    numbers = inputs.make(name, size)
    by_size = order(numbers)
    for k in {1, size // 1000, size // 100, size - 1}:
        expected = np.sort(by_size[:k][numbers[by_size[:k]] != 0])
        assert np.array_equal(EXACT[selector]()(Numbers(numbers), k), expected), k


def feedback(numbers: Floats, kept: list[Floats]) -> ValueSource:
    return Feedback(kept[0], numbers)


def momentum(numbers: Floats, kept: list[Floats]) -> ValueSource:
    return Momentum(kept[1], kept[0], numbers, 0.9)


def difference(numbers: Floats, kept: list[Floats]) -> ValueSource:
    return Difference(numbers, kept[0])


@for_each("source", [feedback, momentum, difference])
@for_each("size", [SMALL + 1, 300_007])
@for_each("name", [*inputs.FINITE][::4])
def test_the_compiled_sweep_does_what_steps_of_numpy_do(
    name: str, size: int, source: Callable[[Floats, list[Floats]], ValueSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = inputs.make(name, size)
    for k in (1, size // 100):
        steps, loop = ([np.roll(numbers, 7), np.roll(numbers, 11)] for _ in range(2))
        monkeypatch.setattr(sweep, "COMPILED_FROM", size + 1)
        expected = SampleAndSweep()(source(numbers, steps), k)
        monkeypatch.setattr(sweep, "COMPILED_FROM", size)
        assert np.array_equal(SampleAndSweep()(source(numbers, loop), k), expected), k
        for mine, theirs in zip(loop, steps, strict=True):
            assert np.array_equal(mine.view(np.int32), theirs.view(np.int32))


@for_each("gradient", [np.zeros(128, np.float64), np.zeros(256, np.float32)[::2]])
def test_the_compiled_sweep_refuses_what_it_would_misread(gradient: Any) -> None:
    from testbed.codec.selectors.compiled import SWEEPS

    with pytest.raises(Exception, match="a row is read as float32 one after the other"):
        SWEEPS[Feedback](np.zeros(128, np.float32), gradient, np.int32(1), np.empty(192, np.int64))


@for_each("name", inputs.FINITE)
def test_torch_takes_the_same_magnitudes(name: str) -> None:
    numbers = inputs.make(name, 100_003)
    mine, others = (select(Numbers(numbers), 1000) for select in (SampleAndSweep(), TorchTopk()))
    assert np.array_equal(np.sort(np.abs(numbers[mine])), np.sort(np.abs(numbers[others])))


@for_each("size", [200, 300_007])
@for_each("name", inputs.NOT_FINITE)
@for_each("select", [*(make() for make in EXACT.values()), TorchTopk(), PublishedMsTopk(), RandomK()])
def test_what_is_not_finite_is_counted_and_refused(select: Select, name: str, size: int) -> None:
    numbers = inputs.make(name, size)
    numbers[size // 2] = np.nan
    with pytest.raises(NonFinite) as error:
        select(Numbers(numbers), 10)
    assert error.value.count == 2 or isinstance(select, RandomK)


def test_zeros_are_not_partitioned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most differences of values are zero, and numpy's partition is slow among many equal numbers."""
    sizes, real = [], np.partition

    def partition(numbers: Floats, at: int) -> Floats:
        sizes.append(numbers.size)
        return real(numbers, at)

    monkeypatch.setattr(np, "partition", partition)
    value = np.zeros(50_000, np.float32)
    value[::50] = np.arange(1, 1001)
    chosen = SampleAndSweep(0)(Difference(value, np.zeros_like(value)), 500)
    assert chosen.tolist() == list(range(25_000, 50_000, 50)) and sizes == [1000]


@for_each("select", [*(make() for make in EXACT.values()), TorchTopk(), PublishedMsTopk(), RandomK()])
def test_k_must_fit(select: Select) -> None:
    for k in (-1, 11):
        with pytest.raises(ValueError, match=f"cannot choose {k} of 10 elements"):
            select(Numbers(np.ones(10, np.float32)), k)


def test_numbers_too_small_to_be_normal_are_still_larger_than_zero() -> None:
    numbers = np.zeros(SMALL + 7, np.float32)
    numbers[[5, 70_000, SMALL + 3]] = [1e-45, -3e-45, 1e-39]
    assert SampleAndSweep()(Numbers(numbers), 2).tolist() == [70_000, SMALL + 3]
    assert SampleAndSweep()(Numbers(numbers), 1000).tolist() == [5, 70_000, SMALL + 3]


@for_each("name", ["Student-t(3)", "one large layer", "few integers", "constant", "zeros"])
@for_each("size", [1001, SMALL + 1, 400_003])
def test_the_sweep_updates_its_source_exactly_once_everywhere(name: str, size: int) -> None:
    old, gradient = inputs.make("normal", size, 1), inputs.make(name, size)
    if name in ("constant", "zeros"):
        old = np.zeros_like(old)
    residual = old.copy()
    chosen = SampleAndSweep()(Feedback(residual, gradient), size // 100)
    assert np.array_equal(residual, old + gradient)
    assert np.array_equal(chosen, right(old + gradient, size // 100))


@for_each("size", [1001, 400_003])
def test_momentum_is_swept_like_computed_step_by_step(size: int) -> None:
    velocity, total, gradient = (inputs.make("Student-t(3)", size, seed) for seed in range(3))
    expected_velocity = velocity * np.float32(0.9) + gradient
    expected_total = total + expected_velocity
    chosen = SampleAndSweep()(Momentum(velocity, total, gradient, 0.9), size // 100)
    assert np.array_equal(velocity, expected_velocity)
    assert np.array_equal(total, expected_total)
    assert np.array_equal(chosen, right(expected_total, size // 100))


@for_each("size", [1001, 400_003])
def test_differences_leave_both_sides_as_they_are(size: int) -> None:
    value, mirror = inputs.make("normal", size, 1), inputs.make("normal", size, 2)
    copies = value.copy(), mirror.copy()
    chosen = SampleAndSweep()(Difference(value, mirror), size // 100)
    assert np.array_equal(chosen, right(value - mirror, size // 100))
    assert np.array_equal(value, copies[0])
    assert np.array_equal(mirror, copies[1])


def test_the_result_does_not_depend_on_the_sample() -> None:
    numbers = inputs.make("Student-t(3)", 300_001)
    results = [SampleAndSweep(seed)(Numbers(numbers), 300).tolist() for seed in range(20)]
    assert all(result == results[0] for result in results)


def test_a_sample_that_misleads_is_noticed() -> None:
    """Everything at the sampled positions is large, so that the bound is far too high."""
    from testbed.codec.selectors.sweep import sample_of

    size = 1_000_003
    numbers = inputs.make("normal", size)
    numbers[sample_of(size, 0)[:9000]] *= 1e4
    for k in (1000, 20_000):
        assert np.array_equal(SampleAndSweep(0)(Numbers(numbers), k), right(numbers, k))


@pytest.mark.slow
def test_a_hundred_million_elements() -> None:
    size = 100_000_000
    numbers = np.random.default_rng(0).standard_normal(size, np.float32)
    numbers[50_000_000:] *= 0.01
    chosen = SampleAndSweep()(Numbers(numbers), size // 1000)
    smallest = np.abs(numbers[chosen]).min()
    assert chosen.size == size // 1000
    assert (np.diff(chosen) > 0).all()
    others = np.abs(numbers)
    others[chosen] = 0
    assert others.max() <= smallest


def test_random_k_draws_anew_and_is_repeatable() -> None:
    numbers = Numbers(inputs.make("normal", 1000))
    one, other = RandomK(5), RandomK(5)
    draws = [one(numbers, 100) for _ in range(3)]
    assert [other(numbers, 100).tolist() for _ in range(3)] == [draw.tolist() for draw in draws]
    assert len({tuple(draw.tolist()) for draw in draws}) == 3
    assert all(len(set(draw.tolist())) == 100 for draw in draws)


# ---- MSTopK as published: pinned, with its failures ---------------------------------------------------------------


def recall(name: str, share: float = 0.01, size: int = 300_000) -> tuple[int, float]:
    """How many it returns, and which share of the k largest is among them."""
    numbers, k = inputs.make(name, size), int(share * size)
    chosen = PublishedMsTopk(0)(Numbers(numbers), k)
    return chosen.size, np.intersect1d(chosen, right(numbers, k)).size / k


@for_each("name", ["normal", "Laplace", "Student-t(3)", "log-normal 4"])
def test_published_mstopk_finds_the_largest_of_ordinary_tensors(name: str) -> None:
    count, share = recall(name)
    assert count == 3_000
    assert share > 0.999


@for_each("name", ["log-normal 6", "one large layer", "outlier 1e30"])
def test_published_mstopk_sends_a_random_run_where_the_kth_lies_below_the_mean(name: str) -> None:
    count, share = recall(name)
    assert count == 3_000
    assert share < 0.65


@for_each("name", ["constant", "zeros"])
def test_published_mstopk_returns_everything_of_a_constant_tensor(name: str) -> None:
    assert PublishedMsTopk(0)(Numbers(inputs.make(name, 100_000)), 1000).size == 100_000


def test_mstopk_bisects_unless_the_exact_choice_is_asked_for() -> None:
    """Of a tensor with one outlier, the bisection finds little of what the exact choice finds."""
    gradient = torch.from_numpy(inputs.make("outlier 1e30", 10_000))
    largest = set(gradient.abs().topk(100).indices.tolist())
    found = {}
    for name, options in (("default", {}), ("exact", {"selector": "exact"})):
        codec = make_codec("mstopk", {"ratio": 0.01, "bound": 1, **options})
        sent = codec.decode(0, codec.encode(0, gradient), gradient.numel())
        found[name] = len(largest & set(sent.nonzero().view(-1).tolist()))
    assert found["exact"] == 100
    assert found["default"] < 65
    assert AllReduceOptions(algorithm="hitopk").selector == MsTopKOptions().selector


# ---- speed ----------------------------------------------------------------------------------------------------------


@pytest.mark.wallclock  # compares two times
def test_the_sweep_is_several_times_faster_than_torch_topk() -> None:
    """Measured: 13 to 20 times at ten million elements; a busy machine may halve that."""
    size, k = 4_000_000, 4_000
    gradient = inputs.make("Student-t(3)", size)
    mine, theirs = np.zeros(size, np.float32), torch.zeros(size)
    select, torch_gradient, times = SampleAndSweep(), torch.from_numpy(gradient), ([], [])
    for _ in range(4):
        start = time.perf_counter()
        mine[select(Feedback(mine, gradient), k)] = 0
        middle = time.perf_counter()
        theirs.add_(torch_gradient)
        theirs[torch.topk(theirs.abs(), k, sorted=False).indices] = 0
        times[0].append(middle - start)
        times[1].append(time.perf_counter() - middle)
    assert min(times[1]) > 3 * min(times[0])
