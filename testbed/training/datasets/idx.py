"""IDX files, MNIST's format: two zero bytes, a type, the number of dimensions, sizes as big-endian 32 bits, data."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import torch
from torch import Tensor

from testbed.training.datasets.files import malformed, read_bytes

_UNSIGNED_BYTE = 0x08


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Return the uint8 tensor of an IDX file. Raise ``ScenarioError`` unless it is one with so many dimensions."""
    content = read_bytes(path)
    header = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, _UNSIGNED_BYTE, dimensions)) or len(content) < header:
        raise malformed(path, f"does not begin as an IDX file of bytes in {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise malformed(path, f"holds {len(content)} bytes, but its header promises {expected}")
    if not math.prod(shape):
        raise malformed(path, "is empty")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=header).reshape(shape)
