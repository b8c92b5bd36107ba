"""Two bits an element when pushed, with a residual; dense float32 when pulled (MXNet's, and GeoMX's, ``2bit``).

residual ← residual + gradient. Where it reaches +threshold, code 11 is sent and the threshold taken off; where it
reaches −threshold, code 10, and it is put on; elsewhere 00. Sixteen codes fill a 32-bit word, four a byte, the first
of them in its two highest bits. (1-bit SGD, Seide et al., 2014, is where the residual comes from.)
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from testbed.codec.base import Codec, part
from testbed.codec.errors import check_finite
from testbed.codec.options import TwoBitOptions

NEGATIVE, POSITIVE, NEVER = 0b10, 0b11, 0b01
SHIFTS = (6, 4, 2, 0)


class TwoBitCodec(Codec):
    """Up: 4·⌈n/16⌉ bytes. Down: 4·n bytes."""

    def __init__(self, options: TwoBitOptions) -> None:
        self._threshold = options.threshold
        self._residuals: dict[int, Tensor] = {}
        self._numbers_of = torch.from_numpy(_decoding_table(options.threshold))

    def residual(self, wire_key: int) -> Tensor | None:
        """Return what has not been sent of this key yet."""
        return self._residuals.get(wire_key)

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        if tensor.is_meta:
            return (torch.empty(self.encoded_bytes(tensor.numel()), dtype=torch.uint8, device="meta"),)
        check_finite(wire_key, tensor)
        residual = self._residuals.get(wire_key)
        residual = tensor.clone() if residual is None else residual.add_(tensor)
        self._residuals[wire_key] = residual
        positive, negative = residual >= self._threshold, residual <= -self._threshold
        residual.sub_(positive.float() - negative.float(), alpha=self._threshold)
        return (_pack(positive, negative),)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        packed = part(parts, torch.uint8, self.encoded_bytes(size))
        if packed.is_meta:
            return torch.empty(size, device="meta")
        _check_codes(packed.numpy(), size)
        return self._numbers_of[packed.int()].reshape(-1)[:size]

    def encoded_bytes(self, size: int) -> int:
        return 4 * -(-size // 16)


def _pack(positive: Tensor, negative: Tensor) -> Tensor:
    size = positive.numel()
    codes = torch.zeros(16 * -(-size // 16), dtype=torch.uint8)
    codes[:size] = positive * POSITIVE + negative * NEGATIVE
    quads = codes.view(-1, 4)
    packed = quads[:, 3].clone()
    for column, shift in enumerate(SHIFTS[:3]):
        packed |= quads[:, column] << shift
    return packed


def _codes_of(packed: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> list[np.ndarray]:
    return [(packed >> shift) & 3 for shift in SHIFTS]


def _decoding_table(threshold: float) -> np.ndarray:
    """The four numbers that each of the 256 bytes stands for."""
    numbers = np.array([0.0, 0.0, -threshold, threshold], np.float32)
    return np.stack([numbers[codes] for codes in _codes_of(np.arange(256, dtype=np.uint8))], axis=1)


def _check_codes(packed: np.ndarray, size: int) -> None:
    # 01 is the one code that is never sent: its low bit is set and its high bit is not
    if (packed & ~(packed >> 1) & 0b01010101).any():
        raise ValueError("a two-bit code is 01, which is never sent")
    behind = np.stack(_codes_of(packed[size // 4 :]), axis=1).reshape(-1)[size % 4 :]
    if behind.any():
        raise ValueError(f"there are codes behind the last of {size} elements")
