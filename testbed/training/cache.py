"""The cache levels of a node (decoded samples in memory, encoded samples on disk), and the encoding of a sample.

A level keeps the first samples that fit, and evicts none. As an epoch visits every sample once, evicting the oldest
would remove each sample before its next use.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from testbed.training.datasets import Dataset

_DIGEST_BYTES = 32
Content = TypeVar("Content")

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
    """Encodes and decodes the samples of one data set, which all have the same shapes and types."""

    def __init__(self, dataset: Dataset) -> None:
        self._like = (dataset.train_inputs, dataset.train_labels)

    def sample(self, number: int) -> Sample:
        return Sample(*(tensor[number] for tensor in self._like))

    def encode(self, sample: Sample) -> bytes:
        """Return the sample, compressed without loss (zlib, level 1)."""
        parts = [tensor.contiguous().numpy().tobytes() for tensor in (sample.input, sample.label)]
        return zlib.compress(_SIZES.pack(len(parts[0]), len(parts[1])) + parts[0] + parts[1], 1)

    def decode(self, data: bytes) -> Sample:
        plain = zlib.decompress(data)
        first, _ = _SIZES.unpack_from(plain)
        begin = _SIZES.size
        return Sample(self._tensor(plain[begin : begin + first], 0), self._tensor(plain[begin + first :], 1))

    def _tensor(self, data: bytes, which: int) -> Tensor:
        like = self._like[which]
        numbers = np.frombuffer(bytearray(data), dtype=like[:0].numpy().dtype)
        return torch.from_numpy(numbers).reshape(like.shape[1:])


class Level(Generic[Content]):
    """Keeps contents by number during the run, up to a capacity. ``size_of`` returns the bytes of a content."""

    def __init__(self, capacity_bytes: int, size_of: Callable[[Content], int]) -> None:
        self._free_bytes = capacity_bytes
        self._size_of = size_of
        self._contents: dict[int, Content] = {}

    def get(self, number: int) -> Content | None:
        return self._contents.get(number)

    def put(self, number: int, content: Content) -> None:
        size_bytes = self._size_of(content)
        if number not in self._contents and size_bytes <= self._free_bytes:
            self._contents[number] = content
            self._free_bytes -= size_bytes


class FolderDisk:
    """A disk that persists: a file per sample in ``folder``, named by data set and sample number.

    A file is written under a temporary name, then renamed, and begins with its content's SHA-256. Damaged files count
    as missing. A sample that cannot be written (a full disk) is not cached. Several nodes may share a folder.
    """

    def __init__(self, folder: Path, capacity_bytes: int, data_digest: str) -> None:
        self._folder = folder
        self._digest = data_digest
        folder.mkdir(parents=True, exist_ok=True)
        self._free_bytes = capacity_bytes - sum(map(_size_bytes, folder.iterdir()))

    def get(self, number: int) -> bytes | None:
        try:
            whole = self._path(number).read_bytes()
        except FileNotFoundError:
            return None
        content = whole[_DIGEST_BYTES:]
        return content if hashlib.sha256(content).digest() == whole[:_DIGEST_BYTES] else None

    def put(self, number: int, content: bytes) -> None:
        if len(content) + _DIGEST_BYTES > self._free_bytes:
            return
        path = self._path(number)
        temporary = path.with_suffix(f".{os.getpid()}")
        try:
            temporary.write_bytes(hashlib.sha256(content).digest() + content)
            temporary.rename(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            return
        self._free_bytes -= len(content) + _DIGEST_BYTES

    def _path(self, number: int) -> Path:
        return self._folder / hashlib.sha256(f"{self._digest} {number}".encode()).hexdigest()


def _size_bytes(path: Path) -> int:
    """Return the size of a file; 0 if another node has renamed or removed it meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
