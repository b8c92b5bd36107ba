"""Checks of an optimizer (``docs/axes/optimizer.md``): one per key, maybe on a slice of it, and kept in checkpoints."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor

from testbed.testing.subject import Subject
from testbed.testing.verdict import CheckFailed, require
from testbed.training.optimizers import KeyOptimizer
from testbed.training.options.optimizers import DcAsgd

SIZE = 50
_STEPS = 4


def numbers(seed: int, size: int = SIZE) -> Tensor:
    """Return float32 [size], normally distributed."""
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def _key(subject: Subject, value: Tensor | None = None, **values: Any) -> KeyOptimizer:
    return KeyOptimizer(subject.kind, {**subject.values, **values}, numbers(0) if value is None else value)


def a_step_descends(subject: Subject) -> None:
    for seed in range(5):
        key, gradient = _key(subject), numbers(seed + 1)
        before = key.value.clone()
        key.step(gradient, "site")
        change = key.value - before
        require(
            bool(change.isfinite().all()) and float(change @ gradient) < 0, "a step against the gradient",
            f"a step whose product with the gradient is {float(change @ gradient):.3g}",
            "subtract lr times the direction",
        )  # fmt: skip
        require(torch.equal(gradient, numbers(seed + 1)), "the gradient as it was", "it has changed", "work on a copy")


def equal_gradients_give_equal_values(subject: Subject) -> None:
    keys = [_key(subject), _key(subject)]
    for seed in range(_STEPS):
        for torchs_seed, key in enumerate(keys):
            torch.manual_seed(torchs_seed)
            key.step(numbers(seed + 1), "site")
        require(
            torch.equal(keys[0].value, keys[1].value), "equal bits from equal gradients", f"they differ in step {seed}",
            "draw no random numbers, and keep state per parameter, not on the class",
        )  # fmt: skip


def the_schedule_sets_the_step_size(subject: Subject) -> None:
    """A warm-up of ten updates makes the first step a tenth as long."""
    full, tenth = _key(subject, torch.zeros(SIZE)), _key(subject, torch.zeros(SIZE), warmup=10)
    for key in (full, tenth):
        key.step(numbers(1), "site")
    require(
        torch.allclose(10 * tenth.value, full.value, rtol=1e-3, atol=1e-7), "a first step of a tenth with warmup = 10",
        f"{float(tenth.value.norm() / full.value.norm()):.3g} of it",
        "take the rate from param_groups[0]['lr'] in step()",
    )  # fmt: skip


def state_goes_through_a_checkpoint(subject: Subject) -> None:
    old = _key(subject)
    for seed in range(_STEPS):
        old.step(numbers(seed + 1), "site")
    file = io.BytesIO()
    try:
        torch.save(old.state(), file)
        file.seek(0)
        state = torch.load(file, weights_only=True)
    except Exception as error:
        raise CheckFailed(
            "a state of tensors and numbers",
            f"{type(error).__name__}: {error}",
            "keep no other objects in self.state[p]",
        ) from error
    new = _key(subject, numbers(9))
    new.load_state(state)
    for seed in range(_STEPS):
        for key in (old, new):
            key.step(numbers(seed + 20), "site")
        require(
            torch.equal(old.value, new.value), "equal steps after state and load_state", f"they differ in step {seed}",
            "keep all that the next step depends on in self.state[p] of the torch optimizer",
        )  # fmt: skip


def slices_step_like_the_whole(subject: Subject) -> None:
    """A key may be cut over servers, unless ``whole_tensors`` says that a step needs all of it."""
    if subject.entry.whole_tensors:
        return
    whole, cut = _key(subject), [_key(subject, part) for part in torch.split(numbers(0), 20)]
    for seed in range(_STEPS):
        whole.step(numbers(seed + 1), "site")
        for key, gradient in zip(cut, torch.split(numbers(seed + 1), 20), strict=True):
            key.step(gradient, "site")
    together = torch.cat([key.value for key in cut])
    require(
        torch.allclose(together, whole.value, rtol=1e-5, atol=1e-7), "slices that end where the whole tensor does",
        f"off by up to {float((together - whole.value).abs().max()):.3g} after {_STEPS} steps",
        "work element by element, or declare whole_tensors = True",
    )  # fmt: skip


def backups_are_declared_as_they_are_used(subject: Subject) -> None:
    """The value that a member has pulled last is kept, and gradients are compensated, by the options of ``dcasgd``."""
    compensated, declared = isinstance(subject.options, DcAsgd), subject.entry.needs_backups
    require(
        declared == compensated, f"needs_backups = {compensated}, as Options derives from "
        f"{'' if compensated else 'no '}DcAsgd", f"needs_backups = {declared}",
        "derive Options from testbed.training.options.optimizers.DcAsgd, and declare needs_backups = True; or neither",
    )  # fmt: skip


def shapes_alone_count_updates(subject: Subject) -> None:
    key = _key(subject, torch.empty(5, device="meta"))
    key.step(torch.empty(5, device="meta"), "site")
    require(
        key.value.is_meta and key.updates == 1, "an update counted for a meta tensor", str(key.value.device),
        "make() must accept a meta tensor",
    )  # fmt: skip
