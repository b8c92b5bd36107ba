"""What a codec is: flat float32 tensors to payload tensors and back, with a size known in advance."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Codec(Protocol):
    """One end of a tier. Every sender has a codec of its own, with its memory (a residual) per wire key."""

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        """Payload for a flat float32 ``tensor``. Contiguous, and never changed by anybody afterwards."""

    def decode(self, parts: tuple[Tensor, ...], size: int) -> Tensor:
        """Flat float32 tensor of ``size`` elements. Does not change ``parts``; may share their memory."""

    def encoded_bytes(self, size: int) -> int:
        """Bytes that ``encode`` yields for ``size`` elements."""
