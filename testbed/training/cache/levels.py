"""The two levels that a node has itself. Each keeps what comes first while there is room, and forgets nothing.

An epoch visits every sample once: were old samples to make room for new ones, each would be gone when its turn comes.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Protocol

from testbed.training.cache.samples import Sample

_DIGEST_BYTES = 32


class MemoryLevel:
    """Decoded samples by number."""

    def __init__(self, capacity_bytes: int) -> None:
        self._free_bytes = capacity_bytes
        self._samples: dict[int, Sample] = {}

    def get(self, number: int) -> Sample | None:
        return self._samples.get(number)

    def put(self, number: int, sample: Sample) -> None:
        """Keep it, if there is room."""
        if number not in self._samples and sample.size_bytes <= self._free_bytes:
            self._samples[number] = sample
            self._free_bytes -= sample.size_bytes


class Disk(Protocol):
    """Encoded samples by number."""

    def get(self, number: int) -> bytes | None: ...

    def put(self, number: int, content: bytes) -> None:
        """Keep it, if there is room."""


class Shelf:
    """A disk that lives as long as the run, and so needs no files."""

    def __init__(self, capacity_bytes: int) -> None:
        self._free_bytes = capacity_bytes
        self._contents: dict[int, bytes] = {}

    def get(self, number: int) -> bytes | None:
        return self._contents.get(number)

    def put(self, number: int, content: bytes) -> None:
        if number not in self._contents and len(content) <= self._free_bytes:
            self._contents[number] = content
            self._free_bytes -= len(content)


class Folder:
    """A disk for later runs too: a file each in ``folder``, named by what data set and sample it is.

    A file is whole or not there: it is written beside, then renamed, and begins with its content's SHA-256. What is
    damaged counts as not there. Several nodes may share a folder.
    """

    def __init__(self, folder: Path, capacity_bytes: int, data_digest: str) -> None:
        self._folder, self._digest = folder, data_digest
        folder.mkdir(parents=True, exist_ok=True)
        self._free_bytes = capacity_bytes - sum(path.stat().st_size for path in folder.iterdir())

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
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_bytes(hashlib.sha256(content).digest() + content)
        beside.rename(path)
        self._free_bytes -= len(content) + _DIGEST_BYTES

    def _path(self, number: int) -> Path:
        return self._folder / hashlib.sha256(f"{self._digest} {number}".encode()).hexdigest()
