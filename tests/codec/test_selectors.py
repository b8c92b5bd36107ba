"""Selectors choose as a sort does: on the processor, in the form for a GPU, and by kernels in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from testbed.codec.blocks import blocks
from testbed.codec.memory import HostMemory, Select
from testbed.codec.selectors import sweep
from testbed.codec.selectors.chance import RandomK
from testbed.codec.selectors.mstopk import PublishedMsTopk
from testbed.codec.selectors.on_device import DeviceMemory, exact
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


@for_each("size", [200, 300_007])
@for_each("name", inputs.NOT_FINITE)
@for_each("select", [*(make() for make in EXACT.values()), TorchTopk(), PublishedMsTopk(), RandomK()])
def test_what_is_not_finite_is_counted_and_refused(select: Select, name: str, size: int) -> None:
    numbers = inputs.make(name, size)
    numbers[size // 2] = np.nan
    with pytest.raises(NonFinite) as error:
        select(Numbers(numbers), 10)
    assert error.value.count == 2 or isinstance(select, RandomK)


@for_each("select", [*(make() for make in EXACT.values()), TorchTopk(), PublishedMsTopk(), RandomK()])
def test_k_must_fit(select: Select) -> None:
    for k in (-1, 11):
        with pytest.raises(ValueError, match=f"cannot choose {k} of 10 elements"):
            select(Numbers(np.ones(10, np.float32)), k)


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


def test_a_sample_that_misleads_is_noticed() -> None:
    """Everything at the sampled positions is large, so that the bound is far too high."""
    from testbed.codec.selectors.sweep import sample_of

    size = 1_000_003
    numbers = inputs.make("normal", size)
    numbers[sample_of(size, 0)[:9000]] *= 1e4
    for k in (1000, 20_000):
        assert np.array_equal(SampleAndSweep(0)(Numbers(numbers), k), right(numbers, k))


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


ROOT = Path(__file__).parents[2]
TRITON = Path(sys.prefix, "triton")  # where setup.sh puts it


@for_each("name", inputs.FINITE)
@for_each("momentum", [None, 0.9])
def test_the_choice_is_that_of_the_processor(name: str, momentum: float | None) -> None:
    size, k = 3001, 31
    there = DeviceMemory(size, torch.device("cpu"), momentum, exact)
    here = HostMemory(size, SampleAndSweep(), momentum)
    for round_ in range(2):
        gradient = torch.from_numpy(inputs.make(name, size, round_))
        assert all(torch.equal(a, b) for a, b in zip(there.take(gradient, k), here.take(gradient, k), strict=True))
        assert torch.equal(there.state()["unsent"], here.state()["unsent"])


def test_numbers_that_are_not_finite_are_counted() -> None:
    with pytest.raises(NonFinite) as caught:
        DeviceMemory(5000, torch.device("cpu"), None, exact).take(torch.from_numpy(inputs.make("one NaN", 5000)), 50)
    assert caught.value.count == 1


@pytest.mark.skipif(not (TRITON.is_dir() or find_spec("triton")), reason="needs Triton: ./setup.sh --tests")
def test_triton_kernels_choose_the_same() -> None:
    """In a process of its own, as Triton reads when it is imported that it is to interpret.

    Not in a fork: where PyTorch is built for CUDA, this process may have imported Triton already.
    """
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    if not find_spec("triton"):
        environment["PYTHONPATH"] = str(TRITON)
    command = [sys.executable, "-m", "tests.codec.triton_interpreter"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
