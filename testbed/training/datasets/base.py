"""A data set: tensors of samples and labels, for training and for testing."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from testbed.errors import ScenarioError
from testbed.training.options.declarations import DataDeclarations
from testbed.training.seeds import numpy_stream

_BYTE = 255
_ANY_SEED = 0  # the shape and the classes of drawn samples do not depend on the seed


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Samples and labels; labels int64.

    Images: inputs [count, channels, height, width], float32 in [0, 1] or uint8 (a quarter of the memory), labels
    [count]. Text: inputs int64 [count, context]; labels [count, context], the character after each input. Records:
    inputs int64 [count, fields], category numbers from 0 on, where no two fields share a number; labels [count].
    """

    train_inputs: Tensor
    train_labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor
    classes: int

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample: (channels, height, width), (context,) or (fields,)."""
        return tuple(self.train_inputs.shape[1:])

    def first(self, train_samples: int, test_samples: int) -> Dataset:
        """Return the first samples only; 0 means all."""
        train = train_samples or None
        test = test_samples or None
        return Dataset(
            self.train_inputs[:train],
            self.train_labels[:train],
            self.test_inputs[:test],
            self.test_labels[:test],
            self.classes,
        )


class DataSource(DataDeclarations, ABC):
    """A user's own data set. It declares the kind of samples (``gives``) and a nested frozen dataclass ``Options``."""

    Options: ClassVar[type[Any]]

    @staticmethod
    @abstractmethod
    def load(options: Any, seed: int) -> Dataset:
        """Return the samples, from local files or drawn from ``seed``. Called once per process.

        Raise ``ScenarioError`` when files are missing or malformed.
        """

    @classmethod
    def sample_bound(cls, options: Any) -> tuple[tuple[int, ...], int] | None:
        """Load the samples, and return the shape of a sample and the number of classes; ``None`` if loading fails.

        In that case, the run reports the error when it loads the samples again.
        """
        return _found_by_loading(cls, options, state_of_files(options))


@lru_cache(maxsize=16)
def _found_by_loading(source: type[DataSource], options: Any, *_state: Any) -> tuple[tuple[int, ...], int] | None:
    try:
        data = source.load(options, _ANY_SEED)
        return data.input_shape, data.classes
    except Exception:
        return None


def state_of_files(options: Any) -> tuple[tuple[str, int, int], ...]:
    """Return path, size and modification time of each file or folder that options name, and of a folder's files."""
    found = []
    for option in (each for each in fields(options) if "path" in each.metadata):
        if named := getattr(options, option.name):
            path = Path(named).expanduser().absolute()
            inside = list[Path]()
            with suppress(OSError):  # here and below: the loader reports such errors
                inside = sorted(path.iterdir()) if path.is_dir() else []
            for file in (path, *inside):
                with suppress(OSError):
                    about = file.stat()
                    found.append((str(file), about.st_size, about.st_mtime_ns))
    return tuple(found)


def held_out(inputs: Tensor, labels: Tensor, count: int, classes: int, seed: int) -> Dataset:
    """Return a data set with ``count`` random test samples, drawn from ``seed``; the others are for training."""
    order = torch.from_numpy(numpy_stream(seed, "hold out").permutation(len(labels)))
    test = order[:count]
    train = order[count:]
    return Dataset(inputs[train], labels[train], inputs[test], labels[test], classes)


def as_model_input(inputs: Tensor) -> Tensor:
    """Convert uint8 to float32 in [0, 1]; other types are model inputs already."""
    return inputs.float().div_(_BYTE) if inputs.dtype == torch.uint8 else inputs


def digest_of(inputs: Tensor, labels: Tensor) -> str:
    """Return the SHA-256 of samples and labels, their shapes and types."""
    digest = hashlib.sha256()
    for tensor in (inputs, labels):
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def find_files(folder: str, names: tuple[str, ...], source: str, key: str = "folder") -> dict[str, Path]:
    """Return the path of every file, plain or with ``.gz``. Raise a ``ScenarioError`` that names all missing files.

    ``key``: the option that names the folder. Nothing is downloaded, as nodes may have only the emulated network.
    """
    place = Path(folder).expanduser()
    candidates = ((name, place / f"{name}{ending}") for name in names for ending in (".gz", ""))
    found = {name: path for name, path in candidates if path.is_file()}  # the plain one wins
    missing = [name for name in names if name not in found]
    if missing:
        state = "lacks files" if place.is_dir() else "is not a folder" if place.exists() else "does not exist"
        raise ScenarioError(
            [f"training.data: '{folder}' ({place.resolve()}) {state}"]
            + [f"  missing: {name} (or {name}.gz)" for name in missing]
            + [f"  get: {source}", f"  put the files into that folder, or name another with training.data.{key}"]
        )
    return found


def read_bytes(path: Path) -> bytes:
    """Return the content of a plain or gzipped file. Raise ``ScenarioError`` if it cannot be read or unpacked."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise malformed(path, f"cannot be read: {error}") from error


def malformed(path: Path, problem: str) -> ScenarioError:
    return ScenarioError(f"training.data: {path}: {problem}; fetch the file again")
