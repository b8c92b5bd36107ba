"""Optimizers against values worked out by hand, against torch, and against each other; learning rates."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from subprocess import PIPE
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from testbed.training.optimizers import KeyOptimizer, ModelOptimizer, Norms, rate_at
from testbed.training.options import OPTIMIZERS
from testbed.training.options.optimizers import SCHEDULES, Sgd
from tests.for_each import for_each
from tests.training.jobs import same_bits


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def gradients(count: int, size: int = 50, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator) for _ in range(count)]


def stale_step(options: dict[str, Any]) -> float:
    """The step for gradient 2 at value 1, computed by a party that last pulled 0.5."""
    key = KeyOptimizer("dcasgd", {"learning_rate": 0.01, **options}, tensor(0.5))
    key.pulled("party", key.value.clone())
    key.value.fill_(1.0)
    key.step(tensor(2.0), "party")
    return key.value.item() - 1


def test_dcasgd_golden_step() -> None:
    assert stale_step({"compensation": 0.04}) == pytest.approx(-0.0208, abs=1e-7)


def test_adaptive_dcasgd_golden_step() -> None:
    factor = 2 / math.sqrt(0.05 * 2**2 + 1e-7)
    expected = -0.01 * (2 + factor * 4 * 0.5)
    options = {"compensation": 2.0, "adaptive": True, "mean_square_decay": 0.95}
    assert stale_step(options) == pytest.approx(expected, rel=1e-5)


def test_dcasgd_momentum_works() -> None:
    key = KeyOptimizer("dcasgd", {"learning_rate": 0.1, "momentum": 0.5, "compensation": 1.0}, tensor(1.0))
    key.pulled("a", key.value.clone())
    key.step(tensor(1.0), "a")  # drift 0: m = 1, w = 0.9
    key.step(tensor(2.0), "a")  # drift −0.1: g = 2 − 0.4 = 1.6, m = 0.5 + 1.6 = 2.1, w = 0.69
    assert key.value.item() == pytest.approx(0.69, abs=1e-6)


@for_each("extra", [{}, {"momentum": 0.9, "weight_decay": 0.01, "clip": 0.5, "warmup": 3}])
@for_each("adaptive", [False, True])
def test_dcasgd_without_compensation_is_sgd_bit_for_bit(extra: dict[str, Any], adaptive: bool) -> None:
    first = gradients(1)[0]
    plain = KeyOptimizer("sgd", extra, first)
    compensated = KeyOptimizer("dcasgd", {**extra, "compensation": 0.0, "adaptive": adaptive}, first)
    for number, gradient in enumerate(gradients(20, seed=1)):
        plain.step(gradient)
        compensated.step(gradient, f"party{number % 3}")
        if number % 4 == 0:
            compensated.pulled(f"party{number % 3}", compensated.value.clone())
    assert same_bits([plain.value], [compensated.value])


def test_dcasgd_keeps_one_backup_per_party() -> None:
    key = KeyOptimizer("dcasgd", {"learning_rate": 1.0, "compensation": 1.0}, tensor(0.0))
    key.pulled("slow", key.value.clone())
    key.value.fill_(2.0)
    key.pulled("fast", key.value.clone())
    key.value.fill_(3.0)
    key.step(tensor(1.0), "slow")  # drift 3: 1 + 3
    assert key.value.item() == -1.0
    key.step(tensor(1.0), "fast")  # drift −3: 1 − 3
    assert key.value.item() == 1.0
    key.step(tensor(1.0), "new")  # never pulled: drift from the first value, 1: 1 + 1
    assert key.value.item() == -1.0
    key.step(tensor(1.0))  # no single sender: computed at the current value
    assert key.value.item() == -2.0


def test_dcasgd_of_geomx_keeps_one_previous_value_whoever_sent_the_update() -> None:
    options = {"learning_rate": 1.0, "compensation": 1.0, "previous": "any"}
    key = KeyOptimizer("dcasgd", options, tensor(1.0))
    key.pulled("slow", key.value.clone())
    key.step(tensor(1.0), "fast")  # no earlier update: the drift is 0
    assert key.value.item() == 0.0
    key.pulled("fast", key.value.clone())
    key.step(tensor(2.0), "fast")  # from 1 to 0, though it has pulled 0: 2 + 4 · (−1)
    assert key.value.item() == 2.0
    key.step(tensor(1.0), "slow")  # from 0 to 2, though it has pulled 1: 1 + 2
    assert key.value.item() == -1.0


def test_outer_nesterov_golden() -> None:
    key = KeyOptimizer("nesterov", {}, tensor(10.0))
    key.step(tensor(1.0))  # m = 1, step 0.7 · (1 + 0.9)
    assert key.value.item() == pytest.approx(10 - 1.33, abs=1e-6)
    key.step(tensor(1.0))  # m = 1.9, step 0.7 · (1 + 1.71)
    assert key.value.item() == pytest.approx(10 - 1.33 - 1.897, abs=1e-6)


LARS = {"learning_rate": 2.0, "momentum": 0.9, "weight_decay": 0.1, "trust": 0.01}


def test_lars_golden() -> None:
    key = KeyOptimizer("lars", LARS, tensor(3.0, 4.0))
    key.step(tensor(0.6, 0.8))  # ratio 0.01 · 5 / (1 + 0.5), step 2 · ratio · (0.9, 1.2)
    assert key.value.tolist() == pytest.approx([2.94, 3.92], abs=1e-6)
    key.step(tensor(0.0, 0.0))  # a norm of 0: ratio 1, so 0.9 · v + 2 · 0.1 · w
    assert key.value.tolist() == pytest.approx([2.298, 3.064], abs=1e-6)


def test_lars_over_slices_with_the_norms_of_the_whole() -> None:
    first, (gradient,) = gradients(1)[0], gradients(1, seed=1)
    whole = KeyOptimizer("lars", LARS, first)
    slices = [KeyOptimizer("lars", LARS, part) for part in first.split(20)]
    norms = [part.norms(piece) for part, piece in zip(slices, gradient.split(20), strict=True)]
    total = Norms(math.hypot(*(norm.value for norm in norms)), math.hypot(*(norm.gradient for norm in norms)))
    assert total == pytest.approx(whole.norms(gradient))
    whole.step(gradient)
    for part, piece in zip(slices, gradient.split(20), strict=True):
        part.step(piece, norms=total)
    assert torch.allclose(torch.cat([part.value for part in slices]), whole.value, rtol=1e-6)
    alone = KeyOptimizer("lars", LARS, first[:20])
    alone.step(gradient[:20])
    assert not torch.allclose(alone.value, whole.value[:20], rtol=1e-3)


def test_adam_is_the_published_rule() -> None:
    key = KeyOptimizer("adam", {"learning_rate": 0.1}, tensor(1.0))
    mean = square = 0.0
    value = 1.0
    for step, gradient in enumerate((0.5, -2.0, 0.1), 1):
        key.step(tensor(gradient))
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        value -= 0.1 * (mean / (1 - 0.9**step)) / (math.sqrt(square / (1 - 0.999**step)) + 1e-8)
    assert key.value.item() == pytest.approx(value, abs=1e-5)


def test_adamw_decays_the_value_beside_the_gradient() -> None:
    key = KeyOptimizer("adamw", {"learning_rate": 0.1, "weight_decay": 0.5}, tensor(2.0))
    key.step(tensor(0.0))
    assert key.value.item() == pytest.approx(2 * (1 - 0.1 * 0.5), abs=1e-6)


@for_each("kind", OPTIMIZERS)
def test_clipping_is_element_by_element_and_leaves_the_gradient(kind: str) -> None:
    clipped = KeyOptimizer(kind, {"clip": 0.5}, tensor(1.0, 1.0))
    plain = KeyOptimizer(kind, {}, tensor(1.0, 1.0))
    gradient = tensor(7.0, -0.25)
    clipped.step(gradient, "a")
    plain.step(tensor(0.5, -0.25), "a")
    assert same_bits([clipped.value], [plain.value])
    assert gradient.tolist() == [7.0, -0.25]


def test_clipping_by_norm_is_torchs() -> None:
    first, given = [value.clone() for value in gradients(3)], [value.clone() for value in gradients(3, seed=1)]
    options = {"learning_rate": 0.1, "clip_norm": 0.3}
    of_mean, of_sum = ModelOptimizer("sgd", options, first), ModelOptimizer("sgd", options, first)
    theirs = [value.clone().requires_grad_() for value in first]
    for value, gradient in zip(theirs, given, strict=True):
        value.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_(theirs, 0.3)
    torch.optim.SGD(theirs, lr=0.1).step()
    of_mean.step(given)
    of_sum.step([gradient * 4 for gradient in given], workers=4)
    for value, mine, sums, begun in zip(theirs, of_mean.values(), of_sum.values(), first, strict=True):
        assert torch.allclose(mine, value, atol=1e-7)
        assert torch.allclose((sums - begun) / 4, value - begun, atol=1e-6)


def test_all_keys_together_are_torchs_optimizer() -> None:
    first = [value.clone() for value in gradients(3)]
    mine = ModelOptimizer("sgd", {"learning_rate": 0.1, "momentum": 0.9}, first)
    theirs = [value.clone() for value in first]
    reference = torch.optim.SGD(theirs, lr=0.1, momentum=0.9, foreach=False)
    for step in range(4):
        some = gradients(3, seed=step)
        mine.step(some)
        for value, gradient in zip(theirs, some, strict=True):
            value.grad = gradient
        reference.step()
    assert same_bits(mine.values(), theirs)
    mine.load(first)
    assert same_bits(mine.values(), first)


def rates(count: int, **options: Any) -> list[float]:
    return [rate_at(Sgd(learning_rate=1.0, **options), update) for update in range(count)]


def test_warmup_rises_to_the_full_rate_and_stays() -> None:
    assert rates(6, warmup=4) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_step() -> None:
    assert rates(7, schedule="step", period=2, decay=0.5, warmup=1) == [1, 1, 1, 0.5, 0.5, 0.25, 0.25]


def test_cosine() -> None:
    expected = [
        1,
        0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2,
        0.6,
        0.2 + 0.8 * (1 - math.cos(math.pi / 4)) / 2,
        0.2,
        0.2,
    ]
    assert rates(6, schedule="cosine", period=4, decay=0.2) == pytest.approx(expected)


def test_inverse_sqrt() -> None:
    assert rates(9, schedule="inverse_sqrt") == pytest.approx([1 / math.sqrt(done) for done in range(1, 10)])
    assert rates(16, schedule="inverse_sqrt", warmup=4)[3:] == pytest.approx(
        [math.sqrt(4 / done) for done in range(4, 17)]
    )


@given(
    schedule=st.sampled_from(SCHEDULES),
    warmup=st.integers(0, 50),
    period=st.integers(1, 50),
    decay=st.floats(0, 1),
    update=st.integers(0, 200),
)
def test_rates_stay_within_bounds_and_only_fall_after_warmup(
    schedule: str, warmup: int, period: int, decay: float, update: int
) -> None:
    options = Sgd(learning_rate=0.3, schedule=schedule, warmup=warmup, period=period, decay=decay)
    now, later = rate_at(options, update), rate_at(options, update + 1)
    assert 0 <= now <= 0.3 * (1 + 1e-12)
    if update >= warmup:
        assert later <= now * (1 + 1e-12)


ADAM_ALONE = """
import hashlib, torch
from testbed.training.optimizers import KeyOptimizer
generator = torch.Generator().manual_seed(1)
key = KeyOptimizer("adam", {"learning_rate": 0.01}, torch.randn(10_000, generator=generator))
for _ in range(3):
    key.step(torch.randn(10_000, generator=generator))
print(hashlib.sha256(key.value.numpy().tobytes()).hexdigest())
"""


def test_adam_has_the_same_bits_whatever_routines_mkl_chooses() -> None:
    """MKL reads the variable when it is loaded, and rounds square roots by it (on processors of Intel)."""
    commands = [
        subprocess.Popen([sys.executable, "-c", ADAM_ALONE], env={**os.environ, "MKL_CBWR": routines}, stdout=PIPE)
        for routines in ("COMPATIBLE", "AVX2")
    ]
    first, second = (command.communicate()[0] for command in commands)
    assert first == second != b""
