"""Find a data set's files in a local folder, and explain how to get missing ones.

Nothing is downloaded: nodes of a run may have no network but the emulated one.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from testbed.errors import ScenarioError


def find_files(folder: str, names: tuple[str, ...], source: str) -> dict[str, Path]:
    """Return the path of every file, plain or with ``.gz``. Raise ``ScenarioError`` that names all missing files."""
    place = Path(folder).expanduser()
    found = {name: path for name in names for path in _candidates(place, name) if path.is_file()}
    missing = [name for name in names if name not in found]
    if missing:
        raise ScenarioError(
            [f"training.data: '{folder}' ({place.resolve()}) {_state(place)}"]
            + [f"  missing: {name} (or {name}.gz)" for name in missing]
            + [f"  get: {source}", "  put the files into that folder, or name another with training.data.folder"]
        )
    return found


def _candidates(place: Path, name: str) -> tuple[Path, Path]:
    return place / f"{name}.gz", place / name  # the later one wins


def _state(place: Path) -> str:
    if not place.exists():
        return "does not exist"
    return "lacks files" if place.is_dir() else "is not a folder"


def read_bytes(path: Path) -> bytes:
    """Return the content of a plain or gzipped file. Raise ``ScenarioError`` if it cannot be read or unpacked."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise malformed(path, f"cannot be read: {error}") from error


def malformed(path: Path, problem: str) -> ScenarioError:
    """Return the error for an invalid file."""
    return ScenarioError(f"training.data: {path}: {problem}; fetch the file again")
