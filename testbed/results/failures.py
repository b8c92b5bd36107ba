"""Explains why a script failed: in one line that names the place in the user's code, and a file with the traceback.

    failures/<node>.txt        the cause ``FILE:LINE: TYPE: TEXT``, and the traceback below it
    failures/.<name>.place     where a script of the process <name> was last seen: node, thread, place
    failures/.<name>.dump      written by ``faulthandler`` if that process crashes, or is asked to dump its stacks

A killed process cannot explain its end. The process that sees its end reads the hidden files instead
(``FailureFiles.explain``).
"""

from __future__ import annotations

import ast
import re
import signal
import sysconfig
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FrameType

from testbed.results.oom_kills import OomKills

FOLDER = "failures"
STACKS_SIGNAL = signal.SIGUSR2  # on this signal, a process with scripts dumps its stacks

_PACKAGE = Path(__file__).resolve().parents[1]
_LIBRARIES = tuple(
    f"{path}/"
    for path in (
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *(_PACKAGE.parent / name for name in (_PACKAGE.name, "analysis", "emulation", "topologies")),
    )
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
_REMOTE = ("RemoteTraceback", "_RemoteTraceback")  # of multiprocessing and concurrent.futures
_WRAPPED = re.compile(r"^Caught .*\nOriginal (?P<text>Traceback .*)", re.DOTALL)  # text of torch's DataLoader errors
_LATE = re.compile(r"^Timeout \((?P<time>.*)\)!$", re.MULTILINE)
_FATAL = re.compile(r"^Fatal Python error: (?P<what>.*)$", re.MULTILINE)


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Return whether a source file is the user's: not part of Python, of an installed package, or of the testbed."""
    return not file.startswith("<") and "-packages/" not in file and not file.startswith(_LIBRARIES)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a script failed, in words: ``place`` is ``FILE:LINE``, ``what`` is ``TYPE: TEXT``."""

    place: str
    what: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" if self.place else self.what


def cause_of(error: BaseException, script: Path) -> Cause:
    """Return the cause for an exception of ``script``. Its place is the innermost one in the user's code."""
    details = "".join(traceback.format_exception(error))
    if isinstance(error, SyntaxError) and error.filename:
        return Cause(
            place_of(error.filename, error.lineno or 1, script), f"{type(error).__name__}: {error.msg}", details
        )
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    what = _words(error)
    remote = _remote_text(error)
    if remote:  # raised in another process, whose frames exist only as text
        frames += [(found["file"], int(found["line"])) for found in _FRAME.finditer(remote)]
        last = remote.strip().strip('"').strip().splitlines()[-1]
        what = what if isinstance(error.__cause__, BaseException) and not _WRAPPED.match(_text(error)) else last
    return Cause(_last_place(frames, script) or script.name, what, details)


def place_of(file: str, line: int, script: Path) -> str:
    """Return ``FILE:LINE``, relative to the script's folder if it lies there."""
    path = Path(file)
    return f"{path.relative_to(script.parent) if path.is_relative_to(script.parent) else path}:{line}"


def place_of_frame(frame: FrameType | None, script: Path) -> str:
    """Return the innermost place of a stack in the user's code; empty if there is none."""
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return place_of(frame.f_code.co_filename, frame.f_lineno, script)
        frame = frame.f_back
    return ""


def place_in_dump(dump: str, script: Path, thread: int = 0) -> str:
    """Return the innermost place in the user's code in a dump of ``faulthandler``.

    The thread with the identifier ``thread`` comes first, then the thread that crashed, then the others.
    """
    stacks = re.split(r"^(?=(?:Current thread|Thread) 0x)", dump, flags=re.MULTILINE)
    for stack in sorted(stacks, key=lambda stack: (f"{thread:016x}" not in stack, not stack.startswith("Current"))):
        frames = [(found["file"], int(found["line"])) for found in _FRAME.finditer(stack)]
        if place := _last_place(reversed(frames), script):
            return place
    return ""


def crash_in(log: str) -> str:
    """Return the crash in a log of ``faulthandler``, and its place in the user's code; empty if there is no crash."""
    fatal = list(_FATAL.finditer(log))
    if not fatal:
        return ""
    place = place_in_dump(log[fatal[-1].start() :], Path())
    return f"{fatal[-1]['what']}, in {place}" if place else fatal[-1]["what"]


def _exits(file: Path) -> list[int]:
    """Return the lines of a source file that name ``os._exit``; none if it cannot be read."""
    lines = set()
    with suppress(OSError, SyntaxError, ValueError):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Attribute | ast.Name):
                name = node.attr if isinstance(node, ast.Attribute) else node.id
                if name == "_exit":
                    lines.add(node.lineno)
    return sorted(lines)


def _last_place(frames: Iterable[tuple[str, int]], script: Path) -> str:
    users = [(file, line) for file, line in frames if is_users(file)]
    return place_of(*users[-1], script) if users else ""


def _name_of_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal between SIGRTMIN and SIGRTMAX has no name
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _text(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception:  # a user's class may fail at anything
        return "(its text cannot be read)"


def _words(error: BaseException) -> str:
    return ": ".join([type(error).__name__, *_text(error).splitlines()[:1]])


def _remote_text(error: BaseException) -> str:
    if wrapped := _WRAPPED.match(_text(error)):
        return wrapped["text"]
    return str(error.__cause__) if type(error.__cause__).__name__ in _REMOTE else ""


@dataclass(frozen=True, slots=True)
class FailureFiles:
    """The files about failures of one run. Places are named relative to the folder of ``script``, the user's script."""

    folder: Path
    script: Path

    def of_node(self, node: str) -> Path:
        return self.folder / f"{node.replace('/', '.')}.txt"

    def note(self, node: str) -> str:
        return f"traceback: {FOLDER}/{self.of_node(node).name}"

    def hidden(self, process: str, kind: str) -> Path:
        """Return the ``place`` or the ``dump`` file of a process."""
        return self.folder / f".{process.replace('/', '.')}.{kind}"

    def keep(self, node: str, cause: Cause) -> None:
        self.folder.mkdir(exist_ok=True)
        self.of_node(node).write_text(f"{cause}\n\n{cause.traceback}", encoding="utf-8", errors="replace")

    def kept(self, node: str) -> str:
        """Return the stored cause of a node's failure; empty if there is none."""
        path = self.of_node(node)
        return path.read_text(encoding="utf-8").split("\n\n", 1)[0] if path.exists() else ""

    def last_seen(self, process: str) -> tuple[str, int, str]:
        """Return the node whose script was last seen in a process, the thread and the place; empty if there is none."""
        node, thread, place = (*self._read(self.hidden(process, "place")).split(" ", 2), "0", "")[:3]
        return node, int(thread, 16), place

    def explain(self, process: str, code: int, kills: OomKills) -> tuple[str, str]:
        """Return the node whose script ended the process, and the cause; store the cause. Empty if no script ran there.

        code   exit status of the process, or minus the number of its signal
        kills  the kernel's counts of kills when the process started
        """
        node, thread, seen = self.last_seen(process)
        place = seen
        if not node:
            return "", ""
        if told := self.kept(node):
            return node, told
        dump = self.dump(process)
        what = f"exit status {code}: the process ended without a message"
        fatal = _FATAL.search(dump)
        if late := _LATE.search(dump):
            what = f"TimeoutError: no call of the store for {late['time']}, outside Python"
        elif code < 0:
            killed = f"the process was killed {kills.killer() if code == -signal.SIGKILL else ''}".rstrip()
            what = f"{_name_of_signal(-code)}: {fatal['what'] if fatal else killed}"
        elif exits := self._exits(seen):
            place = exits
            what = f"os._exit: the script ended its process, status {code}"
        cause = Cause(
            place_in_dump(dump, self.script, thread if fatal is None else 0) or place,
            what,
            dump or f"last seen at {seen}\n",
        )
        self.keep(node, cause)
        return node, str(cause)

    def _exits(self, seen: str) -> str:
        """Return the places that may have ended a process without a message: uses of ``os._exit`` in the script, or in
        the file where the script was last seen. Empty if there are none."""
        files = dict.fromkeys((self.script, self.script.parent / seen.rpartition(":")[0]))
        return " or ".join(place_of(str(file), line, self.script) for file in files for line in _exits(file))

    def stands(self, process: str) -> str:
        """Return the place in the dump of a process that was asked for its stacks, or where it was last seen."""
        _, thread, place = self.last_seen(process)
        return place_in_dump(self.dump(process), self.script, thread) or place

    def dump(self, process: str) -> str:
        return self._read(self.hidden(process, "dump"))

    def begin(self, node: str) -> None:
        """Rename the file that an earlier attempt of this node left, by adding a number."""
        path = self.of_node(node)
        number = 1
        while path.exists():
            earlier = path.with_suffix(f".{number}.txt")
            if not earlier.exists():
                path.rename(earlier)
            number += 1

    def close(self) -> None:
        """Remove the hidden files, and the folder if it is empty then."""
        if self.folder.is_dir():
            for path in self.folder.glob(".*"):
                path.unlink(missing_ok=True)
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    @staticmethod
    def _read(path: Path) -> str:
        return path.read_bytes().rstrip(b"\0").decode(errors="replace") if path.exists() else ""
