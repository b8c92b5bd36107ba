"""Contributions that have arrived at a server, how long each of them waited, and the aggregate made of a round's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from testbed import buffers
from testbed.policy.events import Aggregate


class AggregatedPush(msgspec.Struct):
    """The aggregate of the contributions of ``members`` to (key, round).

    notes     those of the contributions, merged
    priority  that of the contributions
    wanted    of a table, the rows that the contributors need of the new value; ``None``: all
    """

    key: int
    round: int
    tensor: Tensor
    members: tuple[str, ...]
    notes: dict[str, Any] = msgspec.field(default_factory=dict)
    priority: int = 0
    wanted: Tensor | None = None


def rounds_of(effect: Aggregate) -> tuple[int, ...]:
    """Return the round of each member's push."""
    return effect.rounds or (effect.round,) * len(effect.members)


def sum_in_order(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum, added in the order given; one tensor alone is returned itself, without a copy.

    Floating-point addition is not associative. Callers give contributions in rank order, whatever the order of their
    arrival was, so the sum has the same bits in every world and in every run.
    """
    if len(tensors) == 1 or tensors[0].is_meta:  # tensors without numbers need no sum
        return tensors[0]
    total = buffers.computed(torch.add, tensors[0], tensors[1])
    for tensor in tensors[2:]:
        total += tensor
    return total


def merge_notes(all_notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the notes of pushes: ``last`` if any says so, the mean of ``loss``, the ``reports`` of all workers.

    ``bases``: each one's ``base`` (``upstream.Bases``), in the order of the pushes, where all have one.
    ``no_gradient`` if all say so: zeros that stand for no gradient. ``trained``: samples and steps of all together.
    """
    if not any(all_notes):
        return {}
    notes: dict[str, Any] = {}
    if any(each.get("last") for each in all_notes):
        notes["last"] = True
    losses = [each["loss"] for each in all_notes if "loss" in each]
    if losses:
        notes["loss"] = sum(losses) / len(losses)
    if all("base" in each for each in all_notes):
        notes["bases"] = [each["base"] for each in all_notes]
    if all(each.get("no_gradient") for each in all_notes):
        notes["no_gradient"] = True
    trained = [each["trained"] for each in all_notes if "trained" in each]
    if trained:
        notes["trained"] = [sum(numbers) for numbers in zip(*trained, strict=True)]
    reports = {worker: report for each in all_notes for worker, report in each.get("reports", {}).items()}
    return notes | ({"reports": reports} if reports else {})


def tokens_weight(samples: int, steps: int) -> float:
    """Return what a contribution counts for that was made with so many samples in so many steps.

    Samples times samples per step (Douillard et al., Decoupled DiLoCo, 2026, arXiv 2604.21428): samples of text have
    equal numbers of tokens, so that these cancel out.
    """
    return samples * samples / steps


class PendingPush(msgspec.Struct):
    """One member's push, which arrived at ``arrived_s``.

    tensor  the decoded contribution; ``None`` where an overlay has added it to another member's
    notes   the metadata that came with it
    copies  the number of members that it stands for (folded workers of a simulation)
    """

    tensor: Tensor | None
    notes: dict[str, Any]
    arrived_s: float
    copies: int = 1


class Contributions:
    """Pushes by member, key and round. Each is taken once, and its wait is asked for once."""

    def __init__(self) -> None:
        self._pending: dict[tuple[str, int, int], PendingPush] = {}
        self._waited_s: dict[tuple[str, int, int], float] = {}
        self._aggregated_s: dict[tuple[str, int, int], float] = {}

    def add(self, member: str, key: int, round_: int, contribution: PendingPush) -> None:
        where = (member, key, round_)
        assert where not in self._pending, f"{member} pushed key {key} of round {round_} twice"
        self._pending[where] = contribution

    def have_come(self, members: Iterable[str], key: int, round_: int) -> bool:
        """Return whether the pushes of all these members to a round are here, and none has been taken."""
        return all((member, key, round_) in self._pending for member in members)

    def drop(self) -> None:
        """Forget what has not been taken."""
        self._pending.clear()

    def pending(self) -> list[tuple[int, int]]:
        """Return (key, round) of what has arrived and has not been taken."""
        return sorted({(key, round_) for _, key, round_ in self._pending})

    def take(self, members: Sequence[str], key: int, rounds: Sequence[int], now_s: float) -> list[PendingPush]:
        """Remove and return the pushes of ``members`` to these rounds, in their order.

        Their wait for each other ends at ``now_s``.
        """
        taken = []
        for member, round_ in zip(members, rounds, strict=True):
            contribution = self._pending.pop((member, key, round_))
            self._waited_s[member, key, round_] = now_s - contribution.arrived_s
            taken.append(contribution)
        return taken

    def on_aggregated(self, members: Sequence[str], key: int, rounds: Sequence[int], now_s: float) -> None:
        """Their new value is here; a member that is not answered now waits for others once more (bounded staleness)."""
        for member, round_ in zip(members, rounds, strict=True):
            self._aggregated_s[member, key, round_] = now_s

    def waited_s(self, member: str, key: int, round_: int, now_s: float) -> float:
        """Return how long that contribution waited for others until now, when its reply is sent; forget it.

        The time between ``take`` and ``on_aggregated`` is not waiting: the sum was computed and passed on. Nothing was
        taken of a member that is answered although it has no part in the round.
        """
        where = (member, key, round_)
        if where not in self._waited_s:
            return 0.0
        return self._waited_s.pop(where) + now_s - self._aggregated_s.pop(where)
