"""Changes some values of a user's scenario file and keeps everything else as it was written, comments included.

    technique: hfa            # replaces all values that the file had on the axes of techniques
    training: {rounds: 60}    # changes the value where the file has it

The new text is for a file in another folder. So it names classes of code by absolute paths, and the other files that it
names (``Edited.files``) must be copied beside it, as a scenario reads no files from outside its folder.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, MutableMapping, MutableSequence, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from testbed import shipped
from testbed.axes import names_code
from testbed.scenario import presets
from testbed.scenario.load import completed

_NO_LINE_BREAKS = 4096
_YAML = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Edited:
    """The new text, the scenario's folder, and the files in it that the text names, relative to the folder."""

    text: str
    folder: Path
    files: tuple[Path, ...]


def edited(path: Path, changes: Sequence[str]) -> Edited | None:
    """Return a scenario file with ``changes``, given as ``path=value`` like the arguments of ``--set``.

    Return ``None`` if a path stands for several places, or for a place that the file writes in another form: the file
    has no single line for such a change.
    """
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = _NO_LINE_BREAKS
    yaml.indent(mapping=2, sequence=4, offset=2)
    path = shipped.path_of(path)
    document = yaml.load(path.read_text(encoding="utf-8"))
    for change in changes:
        name, _, value = change.partition("=")
        if name == presets.KEY:
            _choose(document, value)
        elif not _set(document, completed(name).split("."), yaml.load(value)):
            return None
    folder = path.parent.resolve()
    files = sorted(set(_files(document, folder)))
    stream = io.StringIO()
    yaml.dump(document, stream)
    return Edited(stream.getvalue(), folder, tuple(files))


def _choose(document: CommentedMap, name: str) -> None:
    """Replace the document's values on the axes of techniques by a line with the preset's name."""
    kept = presets.with_preset(document, name)
    for key in [key for key in document if key not in kept]:
        del document[key]
    optimizer = document.get("optimizer")
    if isinstance(optimizer, MutableMapping):
        optimizer.pop("at", None)
    document[presets.KEY] = name


def _set(section: Any, path: Sequence[str], value: Any) -> bool:
    """Set a value below a section. Return ``False`` if ``path`` does not lead to one place of a mapping."""
    *sections, last = path
    for key in sections:
        if not isinstance(section, MutableMapping) or not key.isidentifier():
            return False
        section = section.setdefault(key, CommentedMap())
    if not isinstance(section, MutableMapping) or not last.isidentifier():
        return False
    section[last] = value
    return True


def _files(node: Any, folder: Path) -> Iterator[Path]:
    """Yield the files below ``folder`` that the document names, and make the paths of classes of code absolute.

    If a named file is YAML, such as a topology of the user's own, yield also the files that it names.
    """
    entries: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(node, MutableMapping):
        entries = iter(list(node.items()))
    elif isinstance(node, MutableSequence):
        entries = iter(list(enumerate(node)))
    for key, value in entries:
        if not isinstance(value, str):
            yield from _files(value, folder)
        elif names_code(value):
            node[key] = _with_whole_path(value, folder)
        elif (file := folder / value).is_file() and file.resolve().is_relative_to(folder):
            yield Path(value)
            if file.suffix in _YAML:
                yield from _files(YAML().load(file.read_text(encoding="utf-8")), folder)


def _with_whole_path(code: str, folder: Path) -> str:
    place, _, name = code.rpartition(":")
    return f"{(folder / place).resolve()}:{name}" if place.endswith(".py") else code
