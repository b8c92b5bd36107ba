"""One push of DGT at its receiver: which blocks are here, what they make together, and the account of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from testbed.engine.dgt.blocks import block_values
from testbed.messages import Message
from testbed.policy.order.dgt import RELIABLE, SKIPPED


@dataclass(slots=True)
class BlockAccount:
    """Best-effort blocks of one key and round: sent = delivered (in time) + late + lost. ``resent``: on request."""

    sent: int
    delivered: int = 0
    late: int = 0
    resent: int = 0

    @property
    def lost(self) -> int:
        return self.sent - self.delivered - self.late


@dataclass(slots=True)
class Assembly:
    """A push that is not complete. Blocks may come before the reliable part, in any order, and more than once.

    early    blocks that came before the reliable part, by number
    missing  numbers of the best-effort blocks that have not come
    closed   whether the wait for them has ended
    """

    push: Message | None = None
    early: dict[int, Message] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    closed: bool = False
    _elements: int = 0  # of a block
    _size: int = 0  # elements of the payload
    _rows: Tensor = field(default_factory=lambda: torch.empty(0))  # [blocks, elements], float32

    def begin(self, push: Message, elements: int) -> BlockAccount:
        """Take the reliable part, which says what channel each block travels on. Return a new account."""
        important, channels = push.parts
        self.push, self._elements = push, elements
        reliable = channels == RELIABLE
        best_effort = ~reliable & (channels != SKIPPED)
        self._size = important.numel() + int((~reliable).sum()) * elements
        self._fill(important, reliable)
        self.missing = set(torch.nonzero(best_effort).view(-1).tolist())
        sent = len(self.missing)
        for message in self.early.values():
            self.add(message)
        self.early = {}
        return BlockAccount(sent)

    def _fill(self, important: Tensor, reliable: Tensor) -> None:
        count = len(reliable)
        if important.is_meta:
            self._rows = torch.empty(count, self._elements, device="meta")
            return
        self._rows = torch.zeros(count, self._elements)
        pad = int(reliable.sum()) * self._elements - important.numel()
        self._rows[reliable] = torch.nn.functional.pad(important.float(), (0, pad)).view(-1, self._elements)

    def add(self, message: Message) -> bool:
        """Take a block. Return False if it does not belong to this push, or is here already."""
        block = message.meta["block"]
        if self.push is None:
            is_new = block not in self.early
            self.early.setdefault(block, message)
            return is_new
        if block not in self.missing or message.meta["of"] != len(self._rows):
            return False
        if not self._rows.is_meta:
            self._rows[block] = block_values(message, self._elements)
        self.missing.discard(block)
        return True

    def values(self, late: dict[int, Tensor]) -> Tensor:
        """Return the contribution, float32; missing blocks are zero. ``late`` blocks of the round before are added."""
        if not self._rows.is_meta:
            for block, values in late.items():
                self._rows[block] += values
        return self._rows.view(-1)[: self._size]
