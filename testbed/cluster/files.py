"""Files on their way to the run directory: an agent tells what its nodes have written, and the driver writes it there.

The agent sends events while their files grow, and empties a file when the driver has all of it. It sends checkpoints
and the files of failures when they are complete. Each machine has a part of a checkpoint, which is valid when the
manifest and all files that the manifest names have arrived.
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
    """What was appended to a file of events, or the whole of another file; ``name``: in the run directory."""

    name: str
    data: bytes = field(repr=False)


class WrittenFiles:
    """The agent's side. ``directory``: where its nodes write."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._told_bytes: dict[Path, int] = {}
        self._ended: set[Path] = set()  # parts of files of events to which nothing more is written
        self._whole: dict[str, tuple[int, int]] = {}

    def new(self) -> Iterator[FilePiece]:
        """Yield what has been written since the last call."""
        found = parts(self._directory / EVENTS)
        for path, following in zip_longest(found, found[1:]):
            if path not in self._ended:
                yield from self._appended(path)
                if following is not None and writer_of(following) == writer_of(path):
                    self._ended.add(path)
                    os.truncate(path, 0)  # its name stays: a node's next process numbers its parts by those there
        for path in self._complete():
            try:
                if self._whole.get(name := self._name(path)) != (version := _version(path)):
                    yield FilePiece(name, path.read_bytes())
                    self._whole[name] = version
                    if path.suffix == ".pt":  # the driver has it; a checkpoint of another machine is of no use here
                        path.unlink()
            except FileNotFoundError:  # its directory has just got its final name
                continue

    def put(self, piece: FilePiece) -> None:
        """Write a file of the driver, which is not told again."""
        path = self._directory / piece.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(piece.data)
        self._whole[piece.name] = _version(path)

    def forget_checkpoints(self) -> None:
        """Remove all: another attempt may write others."""
        shutil.rmtree(self._directory / CHECKPOINTS, ignore_errors=True)
        self._whole = {name: version for name, version in self._whole.items() if not name.startswith(CHECKPOINTS)}

    def _appended(self, path: Path) -> Iterator[FilePiece]:
        with path.open("rb") as file:
            file.seek(self._told_bytes.get(path, 0))
            if data := file.read():
                yield FilePiece(self._name(path), data)
            self._told_bytes[path] = file.tell()

    def _complete(self) -> Iterator[Path]:
        """Yield the files that are sent in one piece: each got its name when it was complete."""
        yield from sorted((self._directory / FAILURES).glob("[!.]*.txt"))
        folders = sorted((self._directory / CHECKPOINTS).glob("*ckpt-*"), key=_round_of)
        for folder in folders:
            yield from sorted(path for path in folder.glob("[!.]*"))

    def _name(self, path: Path) -> str:
        """Return its name in the run directory: of a checkpoint, the number says which."""
        folder, *rest = path.relative_to(self._directory).parts
        if folder == CHECKPOINTS:
            rest[0] = rest[0].lstrip(".").removesuffix(".tmp")
        return str(PurePosixPath(folder, *rest))


def _version(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_mtime_ns, about.st_size


class ReceivedFiles:
    """The driver's side, of one agent. ``events``: the files of events in the run directory that came from it."""

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
        """Return the file of a part of a writer: an agent that took another's place numbers its own from 0 again."""
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
    """Make a checkpoint of the files in ``folder`` if the last that was missing has come."""
    manifest = folder / _MANIFEST
    if manifest.is_file() and all((folder / name).is_file() for name in json.loads(manifest.read_text())["files"]):
        complete(folder, folder.parent / folder.name.removeprefix(".").removesuffix(".tmp"))
        # a machine tells of checkpoints in their order: what is incomplete by now, a node could not write
        remove_incomplete(folder.parent.parent, before=_round_of(folder))


def remove_incomplete(directory: Path, before: float = math.inf) -> None:
    """Remove what has come of checkpoints ``before`` a round that were given up: no machine sends any more of them.

    The next attempt may write the same rounds: a file of both would make a checkpoint.
    """
    for folder in list((directory / CHECKPOINTS).glob(".ckpt-*.tmp")):
        if _round_of(folder) < before:
            shutil.rmtree(folder, ignore_errors=True)


def _round_of(folder: Path) -> int:
    """Return the round of a checkpoint, complete or not: names do not sort so after round 999999."""
    return int(folder.name.removesuffix(".tmp").rpartition("-")[2])


def checkpoint_files(checkpoint: Path, nodes: frozenset[str]) -> Iterator[FilePiece]:
    """Yield those files of a checkpoint that ``nodes`` need."""
    about = json.loads((checkpoint / _MANIFEST).read_text())
    own = {name for name, node in about["nodes"].items() if node in nodes}
    about |= {key: {name: value for name, value in about[key].items() if name in own} for key in ("files", "nodes")}
    place = f"{CHECKPOINTS}/{checkpoint.name}"
    for name in sorted(own):
        yield FilePiece(f"{place}/{name}", (checkpoint / name).read_bytes())
    yield FilePiece(f"{place}/{_MANIFEST}", json.dumps(about).encode())
