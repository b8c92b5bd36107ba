"""A server's received contributions, how long each of them waited, and the aggregate of a round's contributions."""

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

    notes     the merged notes of the contributions
    priority  the priority of the contributions
    wanted    for a table: the rows of the new value that the contributors need; ``None``: all rows
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
    """Return the sum, added in the given order. A single tensor is returned itself, without a copy.

    Floating-point addition is not associative. Callers pass contributions in rank order, not in order of arrival, so
    the sum has the same bits in every world and in every run.
    """
    if len(tensors) == 1 or tensors[0].is_meta:  # tensors without numbers need no sum
        return tensors[0]
    total = buffers.computed(torch.add, tensors[0], tensors[1])
    for tensor in tensors[2:]:
        total += tensor
    return total


def merge_notes(all_notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the notes of pushes.

    last         set if any push has it
    loss         the mean of the pushes' losses
    bases        the ``base`` of each push (``upstream.Bases``), in their order, if all pushes have one
    no_gradient  set if all pushes have it: their zeros stand for no gradient
    trained      the sums of samples and of steps
    reports      the reports of all workers
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
    """Return the weight of a contribution that was made with ``samples`` samples in ``steps`` steps.

    It is samples times samples per step (Douillard et al., Decoupled DiLoCo, 2026, arXiv 2604.21428). Their weight
    counts tokens; as all samples of text have equally many tokens, that number cancels out.
    """
    return samples * samples / steps


class PendingPush(msgspec.Struct):
    """One member's push, which arrived at ``arrived_s``.

    tensor  the decoded contribution; ``None`` if an overlay has added it to another member's contribution
    notes   the push's metadata
    copies  the number of members for which the push stands (folded workers of a simulation)
    """

    tensor: Tensor | None
    notes: dict[str, Any]
    arrived_s: float
    copies: int = 1


class Contributions:
    """Pushes by member, key and round. Callers take each push once, and ask once how long it waited."""

    def __init__(self) -> None:
        self._pending: dict[tuple[str, int, int], PendingPush] = {}
        self._waited_s: dict[tuple[str, int, int], float] = {}
        self._aggregated_s: dict[tuple[str, int, int], float] = {}

    def add(self, member: str, key: int, round_: int, contribution: PendingPush) -> None:
        where = (member, key, round_)
        assert where not in self._pending, f"{member} pushed key {key} of round {round_} twice"
        self._pending[where] = contribution

    def have_come(self, members: Iterable[str], key: int, round_: int) -> bool:
        """Return whether the pushes of all these members to a round have arrived and none has been taken."""
        return all((member, key, round_) in self._pending for member in members)

    def drop(self) -> None:
        """Forget all pushes that have not been taken."""
        self._pending.clear()

    def pending(self) -> list[tuple[int, int]]:
        """Return the sorted (key, round) pairs of the pushes that have not been taken."""
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
        """Note at ``now_s`` that the aggregate of these pushes is done.

        A member whose reply is held now waits for others again (bounded staleness).
        """
        for member, round_ in zip(members, rounds, strict=True):
            self._aggregated_s[member, key, round_] = now_s

    def waited_s(self, member: str, key: int, round_: int, now_s: float) -> float:
        """Return how many seconds a contribution waited for others until its reply at ``now_s``, and forget it.

        The time between ``take`` and ``on_aggregated`` is no waiting: the sum was computed and passed on. The result is
        0 for a member that receives a reply although it took no part in the round.
        """
        where = (member, key, round_)
        if where not in self._waited_s:
            return 0.0
        return self._waited_s.pop(where) + now_s - self._aggregated_s.pop(where)
