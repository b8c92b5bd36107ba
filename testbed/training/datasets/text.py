"""Text as windows of characters or bytes; the end of the text is held out."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from testbed.errors import ScenarioError
from testbed.training.datasets.base import Dataset
from testbed.training.options.datasets import PythonDocs, Text


def load_text(options: Text, seed: int) -> Dataset:
    """Return non-overlapping windows of ``context`` characters; classes are the file's characters in sorted order.

    Raise ``ScenarioError`` if the file is missing, not UTF-8, or too short for one window in each part.
    """
    text = _read(Path(options.file).expanduser(), options.file)
    alphabet = sorted(set(text))
    number_of = {character: number for number, character in enumerate(alphabet)}
    stream = torch.tensor([number_of[character] for character in text], dtype=torch.int64)
    return _held_out(stream, options, len(alphabet), f"'{options.file}' has {len(text)} characters")


def load_python_docs(options: PythonDocs, seed: int) -> Dataset:
    """Return windows of ``context`` bytes of the topics that Python's ``help()`` shows, in the order of their names.

    The text depends on the release of the running Python. Raise ``ScenarioError`` if it is too short.
    """
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics)).encode()
    stream = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    return _held_out(stream, options, 256, f"Python's manual has {len(text)} bytes")


def _held_out(stream: Tensor, options: Text | PythonDocs, classes: int, about: str) -> Dataset:
    boundary = len(stream) - round(len(stream) * options.test_share)
    shortest = min(boundary, len(stream) - boundary)
    if shortest <= options.context:
        raise ScenarioError(
            f"training.data: {about}: its shorter part has {shortest}, and a window needs {options.context + 1}; use a "
            "longer text, or a smaller training.data.context"
        )
    return Dataset(
        *_windows(stream[:boundary], options.context), *_windows(stream[boundary:], options.context), classes
    )


def _windows(stream: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Return windows of characters and of their successors, int64 [count, context], as views."""
    return stream[:-1].unfold(0, context, context), stream[1:].unfold(0, context, context)


def _read(path: Path, written: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        cure = "put a text there, or name another with training.data.file"
        raise ScenarioError(f"training.data: '{written}' ({path.resolve()}) does not exist; {cure}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"training.data: '{written}' cannot be read as UTF-8 text: {error}") from error
