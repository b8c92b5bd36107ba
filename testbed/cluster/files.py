"""Copies files of nodes to the run directory: an agent sends what its nodes have written, and the driver writes it.

The agent sends the bytes of event files while the files grow, and empties a file once it has sent all of it. It sends
files of checkpoints and of failures when they are complete. Each machine has a part of a checkpoint. The checkpoint is
valid when its manifest and all files that the manifest names have arrived.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path, PurePosixPath

from testbed.engine.checkpoint import complete
from testbed.results.events import parts, writer_of
from testbed.results.failures import FOLDER as FAILURES

EVENTS = "events"
CHECKPOINTS = "checkpoints"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PART = re.compile(r"(?P<writer>.+)\.\d{4,}\.jsonl\.gz")
_MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Bytes appended to an event file, or the whole of another file. ``name``: path in the run directory."""

    name: str
    data: bytes = field(repr=False)


class WrittenFiles:
    """The agent's side. ``directory``: the directory in which its nodes write."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._told_bytes: dict[Path, int] = {}
        self._ended: set[Path] = set()  # parts of event files that are complete
        self._whole: dict[str, tuple[int, int]] = {}

    def new(self) -> Iterator[FilePiece]:
        """Yield the data that nodes have written since the last call."""
        found = parts(self._directory / EVENTS)
        for path, following in zip_longest(found, found[1:]):
            if path not in self._ended:
                yield from self._appended(path)
                if following is not None and writer_of(following) == writer_of(path):
                    self._ended.add(path)
                    os.truncate(path, 0)  # but not removed: a node's next process continues the numbers of its parts
        for path in self._complete():
            try:
                if self._whole.get(name := self._name(path)) != (version := _version(path)):
                    yield FilePiece(name, path.read_bytes())
                    self._whole[name] = version
                    if path.suffix == ".pt":  # the driver has it now, and this machine does not need it
                        path.unlink()
            except FileNotFoundError:  # its directory has just been renamed to its final name
                continue

    def put(self, piece: FilePiece) -> None:
        """Write a file that the driver sent, and do not send it back."""
        path = self._directory / piece.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(piece.data)
        self._whole[piece.name] = _version(path)

    def forget_checkpoints(self) -> None:
        """Remove all checkpoints here, as another attempt may write different ones."""
        shutil.rmtree(self._directory / CHECKPOINTS, ignore_errors=True)
        self._whole = {name: version for name, version in self._whole.items() if not name.startswith(CHECKPOINTS)}

    def _appended(self, path: Path) -> Iterator[FilePiece]:
        with path.open("rb") as file:
            file.seek(self._told_bytes.get(path, 0))
            if data := file.read():
                yield FilePiece(self._name(path), data)
            self._told_bytes[path] = file.tell()

    def _complete(self) -> Iterator[Path]:
        """Yield the files that are sent in one piece: a file gets its final name when it is complete."""
        yield from sorted((self._directory / FAILURES).glob("[!.]*.txt"))
        folders = sorted((self._directory / CHECKPOINTS).glob("*ckpt-*"), key=_round_of)
        for folder in folders:
            yield from sorted(path for path in folder.glob("[!.]*"))

    def _name(self, path: Path) -> str:
        """Return the name of a file in the run directory; without the marks of an incomplete checkpoint."""
        folder, *rest = path.relative_to(self._directory).parts
        if folder == CHECKPOINTS:
            rest[0] = rest[0].lstrip(".").removesuffix(".tmp")
        return str(PurePosixPath(folder, *rest))


def _version(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_mtime_ns, about.st_size


class ReceivedFiles:
    """The driver's side, for one agent. ``events``: the event files in the run directory that came from this agent."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._parts: dict[str, Path] = {}
        self.events: list[Path] = []

    def take(self, piece: FilePiece) -> None:
        """Write a piece. Raise ``ValueError`` if it does not name a file of a run."""
        folder, *rest = PurePosixPath(piece.name).parts
        wanted = {EVENTS: 1, FAILURES: 1, CHECKPOINTS: 2}.get(folder)
        if wanted != len(rest) or not all(map(_NAME.fullmatch, rest)):
            raise ValueError(f"{piece.name!r} is not a file of a run")
        if folder == EVENTS:
            with self._part(rest[0]).open("ab") as file:
                file.write(piece.data)
            return
        if folder == CHECKPOINTS:
            rest = [f".{rest[0]}.tmp", rest[1]]
        path = self._directory.joinpath(folder, *rest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(piece.data)
        if folder == CHECKPOINTS:
            _settle(path.parent)

    def _part(self, name: str) -> Path:
        """Return the run directory's file for a part of an event file.

        The driver numbers parts anew, as an agent that replaces a lost one begins again with part 0 of a node.
        """
        if name not in self._parts:
            match = _PART.fullmatch(name)
            if match is None:
                raise ValueError(f"{name!r} is not a file of events")
            folder = self._directory / EVENTS
            folder.mkdir(parents=True, exist_ok=True)
            number = sum(writer_of(each) == writer_of(Path(name)) for each in parts(folder))
            self._parts[name] = folder / f"{match['writer']}.{number:04}.jsonl.gz"
            self._parts[name].touch(exist_ok=False)
            self.events.append(self._parts[name])
        return self._parts[name]


def _settle(folder: Path) -> None:
    """Turn ``folder`` into a checkpoint if all of its files have arrived."""
    manifest = folder / _MANIFEST
    if manifest.is_file() and all((folder / name).is_file() for name in json.loads(manifest.read_text())["files"]):
        complete(folder, folder.parent / folder.name.removeprefix(".").removesuffix(".tmp"))
        # Machines send checkpoints in order: a node could not write the earlier ones that are still incomplete.
        remove_incomplete(folder.parent.parent, before=_round_of(folder))


def remove_incomplete(directory: Path, before: float = math.inf) -> None:
    """Remove incomplete checkpoints of rounds earlier than ``before``. No machine may still be sending them.

    The next attempt may write checkpoints of the same rounds, which must not contain files of the earlier attempt.
    """
    for folder in list((directory / CHECKPOINTS).glob(".ckpt-*.tmp")):
        if _round_of(folder) < before:
            shutil.rmtree(folder, ignore_errors=True)


def _round_of(folder: Path) -> int:
    """Return the round of a checkpoint, complete or not. From round 1000000 on, names do not sort by round."""
    return int(folder.name.removesuffix(".tmp").rpartition("-")[2])


def checkpoint_files(checkpoint: Path, nodes: frozenset[str]) -> Iterator[FilePiece]:
    """Yield the files of a checkpoint that ``nodes`` need, and a manifest of these files."""
    about = json.loads((checkpoint / _MANIFEST).read_text())
    own = {name for name, node in about["nodes"].items() if node in nodes}
    about |= {key: {name: value for name, value in about[key].items() if name in own} for key in ("files", "nodes")}
    place = f"{CHECKPOINTS}/{checkpoint.name}"
    for name in sorted(own):
        yield FilePiece(f"{place}/{name}", (checkpoint / name).read_bytes())
    yield FilePiece(f"{place}/{_MANIFEST}", json.dumps(about).encode())
