"""The contract of an optimizer (``docs/axes/optimizer.md``). Each key, or slice of a key, has its own optimizer."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor

from testbed.testing.requirement import Broken, require, requirement
from testbed.testing.subject import Subject
from testbed.training.optimizers import KeyOptimizer
from testbed.training.options.optimizers import DcAsgd

SIZE = 50
_STEPS = 4


def numbers(seed: int, size: int = SIZE) -> Tensor:
    """Return float32 [size], normally distributed."""
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def _key(subject: Subject, value: Tensor | None = None, **values: Any) -> KeyOptimizer:
    return KeyOptimizer(subject.kind, {**subject.values, **values}, numbers(0) if value is None else value)


@requirement("subtract lr times the direction, and work on a copy of the gradient")
def a_step_descends(subject: Subject) -> None:
    """A first step goes against the gradient, and does not change the gradient."""
    for seed in range(1, 6):
        key = _key(subject)
        gradient = numbers(seed)
        before = key.value.clone()
        key.step(gradient, "site")
        product = float((key.value - before) @ gradient)
        require(-torch.inf < product < 0, f"the product of step and gradient is {product:.3g}")
        require(torch.equal(gradient, numbers(seed)), "the gradient has changed")


@requirement("draw no random numbers, and keep state per parameter, not on the class")
def equal_gradients_give_equal_values(subject: Subject) -> None:
    """Two optimizers that get equal gradients give values with equal bits."""
    keys = [_key(subject), _key(subject)]
    for seed in range(_STEPS):
        for torchs_seed, key in enumerate(keys):
            torch.manual_seed(torchs_seed)
            key.step(numbers(seed + 1), "site")
        require(torch.equal(keys[0].value, keys[1].value), f"they differ in step {seed}")


@requirement("take the rate from param_groups[0]['lr'] in step()")
def the_schedule_sets_the_step_size(subject: Subject) -> None:
    """With a warm-up of ten updates, the first step is a tenth as long."""
    full = _key(subject, torch.zeros(SIZE))
    tenth = _key(subject, torch.zeros(SIZE), warmup=10)
    for key in (full, tenth):
        key.step(numbers(1), "site")
    share = float(tenth.value.norm() / full.value.norm())
    is_tenth = torch.allclose(10 * tenth.value, full.value, rtol=1e-3, atol=1e-7)
    require(is_tenth, f"the first step is {share:.3g} times as long")


@requirement("keep all that the next step depends on in self.state[p] of the torch optimizer, as tensors and numbers")
def state_goes_through_a_checkpoint(subject: Subject) -> None:
    """An optimizer that loads the saved state of another one makes the same steps as that one."""
    old = _key(subject)
    new = _key(subject, numbers(9))
    file = io.BytesIO()
    for seed in range(_STEPS):
        _step_and_pull(old, seed)
    try:
        torch.save(old.state(), file)
        file.seek(0)
        new.load_state(torch.load(file, weights_only=True))
    except Exception as error:
        raise Broken(f"{type(error).__name__}: {error}") from error
    for seed in range(_STEPS, 3 * _STEPS):
        for key in (old, new):
            _step_and_pull(key, seed)
        equal = torch.equal(old.value, new.value) and old.updates == new.updates
        require(equal, f"they differ in step {seed - _STEPS} after it")


def _step_and_pull(key: KeyOptimizer, seed: int) -> None:
    """Make a step with the gradient of one of two members. In most steps, the member then pulls the value."""
    member = f"site{seed % 2}"
    key.step(numbers(seed + 1), member)
    if seed % 3:
        key.pulled(member, key.value.clone())


@requirement("work element by element, or declare whole_tensors = True")
def slices_step_like_the_whole(subject: Subject) -> None:
    """Unless whole_tensors is declared, the slices of a key get the same values as the whole key."""
    if subject.entry.whole_tensors:
        return
    whole = _key(subject)
    cut = [_key(subject, part) for part in torch.split(numbers(0), 20)]
    for seed in range(_STEPS):
        whole.step(numbers(seed + 1), "site")
        for key, gradient in zip(cut, torch.split(numbers(seed + 1), 20), strict=True):
            key.step(gradient, "site")
    together = torch.cat([key.value for key in cut])
    off = float((together - whole.value).abs().max())
    require(torch.allclose(together, whole.value, rtol=1e-5, atol=1e-7), f"off by {off:.3g} after {_STEPS} steps")


@requirement(
    "derive Options from testbed.training.options.optimizers.DcAsgd and declare needs_backups = True, or neither"
)
def backups_are_declared_as_they_are_used(subject: Subject) -> None:
    """The values that members pulled are kept (needs_backups) if the options derive from dcasgd's, and only then."""
    compensates = isinstance(subject.options, DcAsgd)
    declared = subject.entry.needs_backups
    require(declared == compensates, f"needs_backups = {declared}, and Options derive from DcAsgd: {compensates}")


@requirement("let make() accept a meta tensor")
def shapes_alone_count_updates(subject: Subject) -> None:
    """A step of a tensor on the meta device counts as an update."""
    key = _key(subject, torch.empty(5, device="meta"))
    key.step(torch.empty(5, device="meta"), "site")
    require(key.value.is_meta and key.updates == 1, f"{key.updates} updates, of a value on {key.value.device}")
