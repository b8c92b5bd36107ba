"""Encode one training sample as bytes for a store or a disk, and decode it to the same bits."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from testbed.training.datasets import Dataset

_SIZES = struct.Struct("!II")  # bytes of the input and of the label, before compression


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Input and label, as in ``Dataset``, without the dimension of samples."""

    input: Tensor
    label: Tensor

    @property
    def size_bytes(self) -> int:
        return self.input.nbytes + self.label.nbytes


class SampleCoder:
    """Codec for the samples of one data set, which have its shapes and types."""

    def __init__(self, dataset: Dataset) -> None:
        self._like = (dataset.train_inputs, dataset.train_labels)

    def encode(self, sample: Sample) -> bytes:
        """Return the sample, compressed without loss (zlib, level 1)."""
        parts = [tensor.contiguous().numpy().tobytes() for tensor in (sample.input, sample.label)]
        return zlib.compress(_SIZES.pack(len(parts[0]), len(parts[1])) + parts[0] + parts[1], 1)

    def decode(self, data: bytes) -> Sample:
        """Return the sample of ``encode``'s bytes."""
        plain = zlib.decompress(data)
        first, _ = _SIZES.unpack_from(plain)
        begin = _SIZES.size
        return Sample(self._tensor(plain[begin : begin + first], 0), self._tensor(plain[begin + first :], 1))

    def _tensor(self, data: bytes, which: int) -> Tensor:
        like = self._like[which]
        numbers = np.frombuffer(bytearray(data), dtype=like[:0].numpy().dtype)
        return torch.from_numpy(numbers).reshape(like.shape[1:])
