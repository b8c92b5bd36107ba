"""Reads YAML files, and finds the files that a scenario names: only in allowed places, and up to a maximum size."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationInfo

from testbed.errors import ScenarioError
from testbed.regular_file import read_regular
from testbed.scenario.reading.document import MAX_BYTES, Node, parse
from testbed.scenario.reading.quantities import refuse


def allows_code(info: ValidationInfo) -> bool:
    """Return whether the section being read may name code or commands; without a context, Python code made it."""
    return info.context is None or bool(info.context.get("allow_code", False))


def beside(file: str, info: ValidationInfo) -> Path:
    """Return the path of a file in or below the scenario's folder; a stranger's scenario may read no other files.

    Raise a refusal if the file lies outside that folder or does not exist, or if the scenario was not read from a file.
    """
    folder: Path | None = (info.context or {}).get("folder")
    if folder is None:
        raise refuse(f"file '{file}' is relative to a scenario file, but there is none")
    try:
        path = (folder / file).resolve()
        is_loop = path.is_symlink()  # Python 3.13 and later do not raise, but leave a loop unresolved
    except (OSError, RuntimeError):  # RuntimeError: a loop, up to Python 3.12
        is_loop = True
    if is_loop:
        raise refuse(f"file '{file}' is a loop of symbolic links", "let it lead to a file")
    if not path.is_relative_to(folder.resolve()):
        cure = "copy it into that folder, or move the scenario into one that holds both"
        raise refuse(f"file '{file}' lies outside the scenario's folder", cure)
    if not path.exists():
        raise refuse(f"{file}: no such file", "the path is relative to the scenario's folder")
    return path


def read_document(path: Path) -> Node:
    """Return the tree of a YAML file. Raise ``ScenarioError`` when it cannot be read, is too large, or is not valid."""
    try:
        if path == Path("/dev/stdin") or path.is_relative_to("/dev/fd"):  # may be pipes, which are not regular files
            with path.open("rb") as file:
                text = file.read(MAX_BYTES + 1)
        else:
            text = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise ScenarioError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise ScenarioError(f"{str(path)!r}: {error}") from error
    return parse(text, str(path))
