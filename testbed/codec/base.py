"""What a codec is: flat float32 tensors to payload tensors and back, in both directions, with sizes known in advance.

Up goes a child's contribution (``encode`` at the child, ``decode`` at the server), down comes the value of the key
(``encode_value`` at the server, ``decode_value`` at the child). A codec object is one end of one child's connection to
its servers: the child has one, its server has one for this child. Memory (residuals, mirrors of what the other end
holds) is kept per wire key. First values travel exactly, outside the codec; both ends learn them by ``begin``.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Codec(Protocol):
    """Tensors are flat float32. Payload parts are contiguous and never changed by anybody once returned."""

    def begin(self, wire_key: int, value: Tensor) -> None:
        """Both ends hold exactly ``value`` for this key from now on (its first value, or after a restart)."""

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        """Payload of a contribution."""

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        """The contribution, ``size`` elements. Does not change ``parts``; may share their memory.

        Raises ``ValueError`` when the parts cannot have come from ``encode`` for this size.
        """

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        """Payload of a key's value after a round, for this child."""

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        """The value as this child will hold it, ``size`` elements."""

    def encoded_bytes(self, size: int) -> int:
        """Bytes that ``encode`` yields for ``size`` elements (an upper bound where they depend on the numbers)."""

    def value_bytes(self, size: int) -> int:
        """Bytes that ``encode_value`` yields for ``size`` elements (an upper bound, likewise)."""
