"""Contributions that have arrived at a server and wait to be combined, and how long each of them waited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from torch import Tensor


class PendingPush(msgspec.Struct):
    """One member's push: the tensor (``None``: it is part of another's), what came with it, and when it was here.

    ``copies``: of how many members, where one stands for several.
    """

    tensor: Tensor | None
    notes: dict[str, Any]
    arrived_s: float
    copies: int = 1


class Contributions:
    """By member, key and round. Each is taken exactly once, and answered once."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int, int], PendingPush] = {}
        self._waited_s: dict[tuple[str, int, int], float] = {}
        self._combined_s: dict[tuple[str, int, int], float] = {}

    def add(self, member: str, key: int, round_: int, contribution: PendingPush) -> None:
        """A push has arrived."""
        where = (member, key, round_)
        assert where not in self._held, f"{member} pushed key {key} of round {round_} twice"
        self._held[where] = contribution

    def begun(self) -> list[tuple[int, int]]:
        """(key, round) of what has arrived and has not been taken."""
        return sorted({(key, round_) for _, key, round_ in self._held})

    def take(self, members: Sequence[str], key: int, round_: int, now_s: float) -> list[PendingPush]:
        """Those of ``members``, in their order; their wait ends ``now_s``."""
        taken = [self._held.pop((member, key, round_)) for member in members]
        for member, contribution in zip(members, taken, strict=True):
            self._waited_s[member, key, round_] = now_s - contribution.arrived_s
        return taken

    def combined(self, members: Sequence[str], key: int, round_: int, now_s: float) -> None:
        """Their new value is there ``now_s``; who is not answered now waits for others again (SSP)."""
        for member in members:
            self._combined_s[member, key, round_] = now_s

    def waited_s(self, member: str, key: int, round_: int, now_s: float) -> float:
        """How long that contribution waited for others; asked once, when its answer goes out."""
        where = (member, key, round_)
        return self._waited_s.pop(where) + now_s - self._combined_s.pop(where)
