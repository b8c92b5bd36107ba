"""Checkpoints on disk: a directory per round, absent or complete, whatever happens while it is written.

Every node writes its own file into ``.ckpt-000010.tmp``; the scheduler then writes the manifest with the files'
SHA-256, gives the directory its name, and removes all but the newest two. Nothing is pickled: files are read as
tensors and plain values only (``torch.load`` with ``weights_only``).
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from testbed.errors import ScenarioError
from testbed.plan.model import Plan
from testbed.results import atomic

VERSION = 1
KEPT = 2
NodeState = dict[str, Tensor | int | float | str]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was read and verified: the last round that all have finished, and every node's state."""

    path: Path
    round: int
    states: Mapping[str, NodeState]


class CheckpointFiles:
    """The checkpoints of one run. ``resumed``: the one that it begins with; ``skipped``: unusable ones, with reasons.

    Raises ``ScenarioError`` when the newest usable one belongs to another job.
    """

    def __init__(self, directory: Path, plan: Plan) -> None:
        self._directory, self._job = directory, job_sha256(plan)
        self.skipped: list[str] = []
        self.failures = 0  # in a row, as the scheduler counts them
        self.resumed = self._newest()

    def write(self, round_: int, node: str, state: Mapping[str, Any]) -> str:
        """Write a node's state after ``round_``; return its SHA-256. Raise ``OSError``, as when the disk is full."""
        folder = self._temporary(round_)
        folder.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        data = buffer.getvalue()
        try:
            with open(folder / _file_name(node), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _explained(error, folder, len(data)) from error
        return hashlib.sha256(data).hexdigest()

    def commit(self, round_: int, digests: Mapping[str, str]) -> Path:
        """Make the files of ``round_`` a checkpoint and remove old ones. On ``OSError`` earlier ones are kept."""
        folder, path = self._temporary(round_), self._directory / f"ckpt-{round_ + 1:06d}"
        files = {_file_name(node): digest for node, digest in digests.items()}
        nodes = {_file_name(node): node for node in digests}
        about = {"version": VERSION, "round": round_, "job_sha256": self._job, "files": files, "nodes": nodes}
        atomic.write_json(folder / "manifest.json", about)
        shutil.rmtree(path, ignore_errors=True)  # of a run that was resumed from an earlier one
        folder.rename(path)
        _sync(self._directory)
        for old in self._found()[:-KEPT]:
            shutil.rmtree(old)
        return path

    def discard(self, round_: int) -> None:
        """Remove the files of ``round_``: a node could not write its own."""
        shutil.rmtree(self._temporary(round_), ignore_errors=True)

    def _temporary(self, round_: int) -> Path:
        return self._directory / f".ckpt-{round_ + 1:06d}.tmp"

    def _found(self) -> list[Path]:
        return sorted(self._directory.glob("ckpt-*")) if self._directory.is_dir() else []

    def _newest(self) -> Checkpoint | None:
        for path in reversed(self._found()):
            try:
                return self._read(path)
            except (OSError, ValueError, KeyError, TypeError, RuntimeError, EOFError) as error:
                self.skipped.append(f"{path.name}: {error}")
        return None

    def _read(self, path: Path) -> Checkpoint:
        about = json.loads((path / "manifest.json").read_text())
        if about["version"] != VERSION:
            raise ValueError(f"version {about['version']}, this release reads version {VERSION}")
        states = {about["nodes"][name]: _load(path / name, digest) for name, digest in about["files"].items()}
        if about["job_sha256"] != self._job:
            raise ScenarioError(f"{path}: belongs to another job; resume the scenario that it was made by")
        return Checkpoint(path, int(about["round"]), states)


def _explained(error: OSError, folder: Path, needed_bytes: int) -> OSError:
    """Return an error that names the free and the needed space, if the disk is full."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return error
    free_mb, needed_mb = shutil.disk_usage(folder).free / 1e6, needed_bytes / 1e6
    return OSError(error.errno, f"disk full: {folder} has {free_mb:.1f} MB, needs {needed_mb:.1f} MB")


def _load(path: Path, digest: str) -> NodeState:
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"{path.name} is damaged (its SHA-256 differs)")
    state: NodeState = torch.load(io.BytesIO(data), weights_only=True)
    return state


def job_sha256(plan: Plan) -> str:
    """Return the hash of what two runs must share for one to resume the other: all but place, pace and length."""
    training = plan.training
    nodes = [(node.name, node.role, node.parents, node.trains) for node in plan.nodes]
    job = (training.model, training.data, training.split, training.batch_size, training.compute)
    content = msgspec.json.encode(msgspec.to_builtins((plan.seed, plan.technique, nodes, job)), order="sorted")
    return hashlib.sha256(content).hexdigest()


def _file_name(node: str) -> str:
    return node.replace("/", ".") + ".pt"


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
