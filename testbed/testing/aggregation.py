"""The contract of an aggregation rule (``docs/axes/aggregation.md``): its results and its declarations."""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.testing.requirement import require, requirement
from testbed.testing.subject import Subject

_MEMBERS = (1, 2, 3, 5, 10)
_SIZES = (7, 1000)  # elements of two keys
_CUT = 300


def _contributions(members: int, size: int) -> Tensor:
    """Return float32 [members, elements], in which all contributions differ."""
    return torch.randn(members, size, generator=torch.Generator().manual_seed(10 * size + members))


def _combined(subject: Subject, keys: list[Tensor]) -> list[Tensor]:
    """Return the results of a new rule for the contributions to each key of one round."""
    members = len(keys[0])
    rule = subject.entry(subject.options)
    weights = torch.full((members,), 1 / members)
    measured = None
    if rule.whole:
        measured = torch.stack([rule.measure(values) for values in keys]).sum(dim=0)
    return [rule.combine(values, weights, measured) for values in keys]


@requirement("return one float32 tensor [elements], of numbers that are finite")
def it_makes_one_contribution_of_several(subject: Subject) -> None:
    """For any number of members, the result is one contribution: float32, with as many elements, all finite."""
    for members in _MEMBERS:
        for values, found in _pairs(subject, members):
            size = values.shape[1]
            fits = found.dtype == torch.float32 and found.shape == (size,)
            require(fits, f"of {members} members and {size} elements {found.dtype} {list(found.shape)}")
            require(found.isfinite().all(), f"of {members} members numbers that are not finite")


@requirement("return that contribution: the mean of equal values is that value")
def members_that_agree_have_their_way(subject: Subject) -> None:
    """If all members contribute the same, the result is this contribution."""
    for members in _MEMBERS:
        keys = [_contributions(1, size).repeat(members, 1) for size in _SIZES]
        for values, found in zip(keys, _combined(subject, keys), strict=True):
            off = float((found - values[0]).abs().max())
            require(off < 1e-5, f"{members} equal contributions give one that is {off:.3g} off")


@requirement("make new tensors, draw nothing from torch's own random numbers, and keep nothing between two calls")
def equal_contributions_give_equal_bits(subject: Subject) -> None:
    """Equal contributions give equal bits. The rule does not change them, and draws no random numbers from torch."""
    keys = [_contributions(5, size) for size in _SIZES]
    before = [values.clone() for values in keys]
    state = torch.random.get_rng_state()
    first = _combined(subject, keys)
    second = _combined(subject, [values.clone() for values in before])
    require(torch.equal(state, torch.random.get_rng_state()), "torch's own random numbers are drawn from")
    require(all(map(torch.equal, keys, before)), "contributions are changed")
    require(all(map(torch.equal, first, second)), "something else the second time")


@requirement("declare by_element = True where elements are independent of each other, and only there")
def by_element_is_declared_as_it_behaves(subject: Subject) -> None:
    """If ``by_element`` is declared, the parts of a key give the same numbers as the whole key."""
    values = _contributions(5, _SIZES[-1])
    (whole,) = _combined(subject, [values])
    parts = [_combined(subject, [part.contiguous()])[0] for part in (values[:, :_CUT], values[:, _CUT:])]
    is_same = torch.allclose(torch.cat(parts), whole, atol=1e-6)
    require(is_same or not subject.entry.by_element, "the parts of a key give other numbers than the whole")


def _pairs(subject: Subject, members: int) -> list[tuple[Tensor, Tensor]]:
    keys = [_contributions(members, size) for size in _SIZES]
    return list(zip(keys, _combined(subject, keys), strict=True))
