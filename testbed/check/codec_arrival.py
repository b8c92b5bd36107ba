"""Checks of how much of a tensor a codec delivers: in each round, or, with memory, over the rounds."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from testbed.check.codec_ends import KEY, LARGEST, CodecEnds, directions, same, tiers
from testbed.check.subject import Subject
from testbed.check.verdict import require

_FEEDBACK_SIZE, _FEEDBACK_ROUNDS = 1024, (200, 400, 800, 1600, 3200)
_ROUNDS = 64  # over which a codec that draws by chance comes close to its mean
_LEAST_COSINE, _LEAST_SIZE, _MOST_SIZE = 0.05, 0.1, 1.5  # of what arrives, and what was sent


def what_is_sent_arrives(subject: Subject) -> None:
    """Without memory, over some rounds: in the direction of the tensor, and about as large."""
    if subject.entry.has_memory:
        return  # see the following checks, and ``a_value_that_stays_arrives``
    for way in directions(subject, LARGEST):
        tensor, arrived = way.tensor(), torch.zeros(way.size)
        for _ in range(_ROUNDS):
            arrived += way.receive(way.send(tensor)) / _ROUNDS
        cosine = _cosine(arrived, tensor)
        require(
            cosine >= _LEAST_COSINE, "a mean of what arrives that points where the tensor does",
            f"{way}: the cosine of the angle between them is {cosine:.3g}", "let decode be the inverse of encode",
        )  # fmt: skip
        on_average = float(arrived @ tensor / tensor.square().sum())
        met = arrived != 0
        by_element = float((arrived[met] / tensor[met]).median())
        require(
            max(on_average, by_element) >= _LEAST_SIZE and on_average <= _MOST_SIZE,
            "a mean of what arrives that is about as large as the tensor", f"{way}: {on_average:.3g} times as large",
            "multiply by the scale in decode that encode has divided by",
        )  # fmt: skip


def _cosine(one: Tensor, other: Tensor) -> float:
    norms = float(one.norm() * other.norm())
    return float(one @ other) / norms if norms > 0 else 0.0


def exact_is_declared_as_it_behaves(subject: Subject) -> None:
    for way in directions(subject) if subject.entry.exact else ():
        tensor = way.tensor()
        require(
            same((way.receive(way.send(tensor)),), (tensor,)), "exact = True: the bits of what was encoded",
            f"other numbers {way}, {way.size} elements", "declare exact = False",
        )  # fmt: skip


def what_is_held_back_is_sent_later(subject: Subject) -> None:
    """With memory, the part of a constant tensor that has not arrived stays bounded; without feedback it grows."""
    for ends in tiers(subject) if subject.entry.has_memory else ():
        missing = _parts_off(ends, only_missing=True)
        require(
            not missing, "a residual that stays bounded over the rounds of a constant tensor",
            f"what has not arrived: {missing}",
            "add what was not sent to the next tensor of that key: residual = tensor + residual − decoded",
        )  # fmt: skip


def nothing_is_sent_twice(subject: Subject) -> None:
    """With memory, and the options with which it adds up: of a constant tensor no more arrives than was sent."""
    if not subject.entry.has_memory:
        return
    plain = Subject(
        subject.axis, subject.kind, {**subject.values, **subject.entry.to_add_up(subject.options)}, subject.file
    )
    for ends in tiers(plain):
        off = _parts_off(ends, only_missing=False)
        require(
            not off, "what arrived and what is kept back to add up to the tensors that were sent",
            f"off by {off}",
            "take what was sent off the residual as it is decoded: residual = tensor + residual − decoded; "
            "name options that multiply tensors in to_add_up",
        )  # fmt: skip


def _parts_off(ends: CodecEnds, *, only_missing: bool) -> str:
    """Return by how many tensors the sum of what arrived is off, in words, if that grows with the rounds."""
    tensor = torch.randn(_FEEDBACK_SIZE, generator=torch.Generator().manual_seed(0))
    tensor *= 0.5 / float(tensor.norm())  # below every bound on norms
    codec, server, arrived = ends.make(), ends.make(), torch.zeros(_FEEDBACK_SIZE)
    size, off, before = float(tensor.abs().mean()), [math.inf], 0
    for rounds in _FEEDBACK_ROUNDS:
        for _ in range(before, rounds):
            arrived += server.decode(KEY, codec.encode(KEY, tensor), _FEEDBACK_SIZE)
        before = rounds
        lacking = rounds * tensor.abs() - arrived * tensor.sign()
        off.append(float((lacking.clamp(min=0) if only_missing else lacking.abs()).mean()) / size)
        if rounds > _FEEDBACK_ROUNDS[0] and math.isfinite(off[-1]) and off[-1] <= 1.5 * off[-2] + 1:
            return ""
    return f"{off[-2]:.4g} tensors after {_FEEDBACK_ROUNDS[-2]} rounds, {off[-1]:.4g} after {_FEEDBACK_ROUNDS[-1]}"
