"""Transfer of files to the driver: an agent sends what its nodes write, and the driver stores it in the run directory.

Files of events are sent while they grow, and emptied when the driver has the whole. Checkpoints and the files of
failures are sent once they are complete. Every machine has a part of a checkpoint; it is valid when the manifest and
all files that it names have arrived.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path, PurePosixPath

from testbed.cluster.control import PIECE_BYTES, Content
from testbed.engine.checkpoint import complete
from testbed.results.events import parts, writer_of
from testbed.results.failures import FOLDER as FAILURES

EVENTS, CHECKPOINTS = "events", "checkpoints"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PART = re.compile(r"(?P<writer>.+)\.\d{4,}\.jsonl\.gz")
_MANIFEST = "manifest.json"


class SentFiles:
    """The agent's side. ``directory``: where its nodes write."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sent_bytes: dict[Path, int] = {}
        self._ended: set[Path] = set()  # parts of files of events to which nothing more is written
        self._whole: dict[Path, tuple[int, int]] = {}

    def leave_out(self) -> None:
        """Do not send the whole files that are there: they came from the driver."""
        self._whole = {path: _version(path) for path in self._complete()}

    def send_new(self, send: Callable[[Content], None]) -> None:
        """Send what has been written since the last call."""
        found = parts(self._directory / EVENTS)
        for path, following in zip_longest(found, found[1:]):
            if path not in self._ended:
                self._sent_bytes[path] = self._send_from(path, self._sent_bytes.get(path, 0), send)
                if following is not None and writer_of(following) == writer_of(path):
                    self._ended.add(path)
                    os.truncate(path, 0)  # its name stays: a node's next process numbers its parts by those there
        for path in self._complete():
            try:
                if self._whole.get(path) != (version := _version(path)):
                    send({"file": self._name(path), "last": self._send_from(path, 0, send)})
                    self._whole[path] = version
                    if path.suffix == ".pt":  # the driver has it; a checkpoint of another machine is of no use here
                        path.unlink()
            except FileNotFoundError:  # its directory has just got its final name
                continue

    def _complete(self) -> Iterator[Path]:
        """Yield the files that are sent whole: they got their names when they were complete."""
        yield from sorted((self._directory / FAILURES).glob("[!.]*.txt"))
        folders = sorted((self._directory / CHECKPOINTS).glob("*ckpt-*"), key=_round_of)
        for folder in folders:
            yield from sorted(path for path in folder.glob("[!.]*"))

    def _send_from(self, path: Path, at: int, send: Callable[[Content], None]) -> int:
        with path.open("rb") as file:
            file.seek(at)
            while data := file.read(PIECE_BYTES):
                send({"file": self._name(path), "at": at, "data": data})
                at += len(data)
        return at

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
        self._paths: dict[str, Path] = {}
        self.events: list[Path] = []

    def take(self, message: Content) -> None:
        """Store a message of ``SentFiles``. Raise ``ValueError`` if it does not name a file of a run."""
        path = self._paths.get(message["file"])
        if path is None:
            path = self._paths[message["file"]] = self._new(message["file"])
        grows = path.parent.name == EVENTS
        coming = path if grows else path.with_name(f".{path.name}.part")
        if not (grows or coming.exists() or message.get("at") == 0):
            # Its checkpoint was completed by other files, as this one is sent a second time, or the run has restarted.
            self._paths.pop(message["file"])
        elif "data" in message:
            with coming.open("ab" if message["at"] else "wb") as file:
                file.write(message["data"])
        elif not grows:
            coming.rename(path)
            del self._paths[message["file"]]
            if path.parent.parent.name == CHECKPOINTS:
                _settle(path)

    def _new(self, name: str) -> Path:
        folder, *rest = PurePosixPath(name).parts
        wanted = {EVENTS: 1, FAILURES: 1, CHECKPOINTS: 2}.get(folder)
        if wanted != len(rest) or not all(map(_NAME.fullmatch, rest)):
            raise ValueError(f"{name!r} is no file of a run")
        if folder == EVENTS:
            return self._new_part(rest[0])
        if folder == CHECKPOINTS:
            rest = [f".{rest[0]}.tmp", rest[1]]
        path = self._directory.joinpath(folder, *rest)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _new_part(self, name: str) -> Path:
        """Return the next part of a writer: an agent that took another's place numbers its own from 0 again."""
        match = _PART.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} is no file of events")
        folder = self._directory / EVENTS
        folder.mkdir(parents=True, exist_ok=True)
        number = sum(writer_of(each) == writer_of(Path(name)) for each in parts(folder))
        path = folder / f"{match['writer']}.{number:04}.jsonl.gz"
        path.touch(exist_ok=False)
        self.events.append(path)
        return path


def _settle(path: Path) -> None:
    """Make a checkpoint of its files if ``path`` was the last that was missing."""
    folder = path.parent
    manifest = folder / _MANIFEST
    if manifest.is_file() and all((folder / name).is_file() for name in json.loads(manifest.read_text())["files"]):
        for coming in folder.glob(".*.part"):
            coming.unlink()
        complete(folder, folder.parent / folder.name.removeprefix(".").removesuffix(".tmp"))
        # a machine sends checkpoints in their order: what is incomplete by now, a node could not write
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


def checkpoint_parts(checkpoint: Path, nodes: frozenset[str]) -> Iterator[Content]:
    """Yield messages with those parts of a checkpoint that ``nodes`` need."""
    about = json.loads((checkpoint / _MANIFEST).read_text())
    own = {name for name, node in about["nodes"].items() if node in nodes}
    about |= {key: {name: value for name, value in about[key].items() if name in own} for key in ("files", "nodes")}
    place = f"{CHECKPOINTS}/{checkpoint.name}"
    for name in sorted(own):
        data = (checkpoint / name).read_bytes()
        for at in range(0, max(1, len(data)), PIECE_BYTES):
            yield {"file": f"{place}/{name}", "at": at, "data": data[at : at + PIECE_BYTES]}
    yield {"file": f"{place}/{_MANIFEST}", "at": 0, "data": json.dumps(about).encode()}


def put(directory: Path, message: Content) -> None:
    """Write a part of a checkpoint that the driver has sent."""
    path = directory / message["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab" if message["at"] else "wb") as file:
        file.write(message["data"])
