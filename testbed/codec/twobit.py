"""Two bits an element when pushed, with a residual; dense float32 when pulled (``2bit`` of MXNet and GeoMX).

First, residual ← residual + gradient. Where the residual is at least +threshold, the codec sends code 11 and subtracts
the threshold from the residual; where it is at most −threshold, it sends code 10 and adds the threshold; elsewhere it
sends 00. A byte has four codes, the first in its two highest bits; a payload is filled up to whole 32-bit words. The
residual is that of 1-bit SGD (Seide et al., 2014).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from testbed import buffers
from testbed.codec.base import Codec, part
from testbed.codec.blocks import blocks
from testbed.codec.errors import check_finite
from testbed.codec.options import TwoBitOptions

SHIFTS = (6, 4, 2, 0)


class TwoBitCodec(Codec):
    """Up: 4·⌈n/16⌉ bytes. Down: 4·n bytes."""

    remembers = ("_residuals",)

    def __init__(self, options: TwoBitOptions) -> None:
        self._threshold = options.threshold
        self._below = np.nextafter(np.float32(options.threshold), np.float32(0))  # the next number towards zero
        self._residuals: dict[int, Tensor] = {}
        self._numbers_of = _decoding_table(options.threshold)

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        if tensor.is_meta:
            return (torch.empty(_packed_bytes(tensor.numel()), dtype=torch.uint8, device="meta"),)
        check_finite(wire_key, tensor)
        if not tensor.is_cpu:
            return (self._encode_on_device(wire_key, tensor),)
        residual = self._residuals.get(wire_key)
        gradient = None if residual is None else tensor
        if residual is None:
            residual = self._residuals[wire_key] = tensor.clone()
        packed = torch.empty(_packed_bytes(tensor.numel()), dtype=torch.uint8)
        for block in blocks(tensor.numel()):
            own = residual[block] if gradient is None else residual[block].add_(gradient[block])
            self._encode_block(own, packed.numpy()[block.start // 4 : -(-block.stop // 16) * 4])
        return (packed,)

    def _encode_on_device(self, wire_key: int, tensor: Tensor) -> Tensor:
        """Return the same codes, by operations that any device has."""
        residual = self._residuals.get(wire_key)
        residual = self._residuals[wire_key] = tensor.clone() if residual is None else residual.add_(tensor)
        sent = torch.nn.functional.hardshrink(residual, float(self._below)).sgn_()
        residual.sub_(sent, alpha=self._threshold)
        codes = torch.zeros(4 * _packed_bytes(sent.numel()), dtype=torch.uint8, device=tensor.device)
        codes[: sent.numel()] = (sent != 0).to(torch.uint8) * 2 + (sent > 0).to(torch.uint8)
        quads = codes.view(-1, 4)
        return quads[:, 0] << 6 | quads[:, 1] << 4 | quads[:, 2] << 2 | quads[:, 3]

    def _decode_on_device(self, packed: Tensor, size: int) -> Tensor:
        codes = torch.stack([packed >> shift & 3 for shift in SHIFTS], dim=1).view(-1)
        numbers = torch.tensor([0.0, 0.0, -self._threshold, self._threshold], device=packed.device)
        if bool((codes == 1).any()):
            raise ValueError("a two-bit code is 01, which is never sent")
        if bool(codes[size:].any()):
            raise ValueError(f"there are codes behind the last of {size} elements")
        return numbers[codes[:size].long()]

    def _encode_block(self, residual: Tensor, packed: np.ndarray) -> None:
        """Write the codes of a block, and subtract the numbers that they stand for from its residual."""
        sent = torch.nn.functional.hardshrink(residual, float(self._below)).sgn_()  # 1, -1, or 0
        residual.sub_(sent, alpha=self._threshold)
        signs = sent.numpy()
        words = _SPREAD[np.packbits(signs != 0)] << 1 | _SPREAD[np.packbits(signs > 0)]
        codes = words.byteswap().view(np.uint8)  # the earlier elements stand in the higher byte
        packed[: codes.size] = codes[: packed.size]
        packed[codes.size :] = 0

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        packed = part(parts, torch.uint8, _packed_bytes(size))
        if packed.is_meta:
            return torch.empty(size, device="meta")
        if not packed.is_cpu:
            return self._decode_on_device(packed, size)
        codes = packed.numpy()
        _check_codes(codes, size)
        numbers = buffers.empty((4 * codes.size,), torch.float32)
        fours = numbers.numpy().view(np.complex128)  # np.take copies four float32 as one 16-byte number
        for block in blocks(codes.size):
            np.take(self._numbers_of, codes[block], out=fours[block], mode="clip")
        return numbers[:size]


def _packed_bytes(size: int) -> int:
    return 4 * -(-size // 16)


def _codes_of(packed: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> list[np.ndarray]:
    return [(packed >> shift) & 3 for shift in SHIFTS]


def _decoding_table(threshold: float) -> np.ndarray:
    """Return, for each of the 256 bytes, its four decoded float32, viewed as one complex128 (16 bytes)."""
    numbers = np.array([0.0, 0.0, -threshold, threshold], np.float32)
    quads = np.stack([numbers[codes] for codes in _codes_of(np.arange(256, dtype=np.uint8))], axis=1)
    return quads.view(np.complex128).reshape(-1)


def _spreading_table() -> np.ndarray:
    """Return, for each byte, 16 bits: its 8 bits, each with a zero bit before it."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8)
    weights = 4 ** np.arange(7, -1, -1)
    return np.asarray((bits * weights).sum(axis=1), np.uint16)


_SPREAD = _spreading_table()


def _check_codes(packed: np.ndarray, size: int) -> None:
    # 01 is the one code that is never sent: its low bit is set and its high bit is not
    if (packed & ~(packed >> 1) & 0b01010101).any():
        raise ValueError("a two-bit code is 01, which is never sent")
    behind = np.stack(_codes_of(packed[size // 4 :]), axis=1).reshape(-1)[size % 4 :]
    if behind.any():
        raise ValueError(f"there are codes behind the last of {size} elements")
