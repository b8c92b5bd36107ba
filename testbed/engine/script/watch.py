"""Keeps on disk which line each script of this process executes, in case the process ends without saying why.

* A thread notes the running script's line every 50 ms. So the line is known if the kernel kills the process (SIGKILL).
* ``faulthandler`` writes the stacks at a crash, and when the process receives ``STACKS_SIGNAL``.
* An audit hook of Python notes the line before a script calls ``os.kill``.
* An exception that ends one of a script's threads ends the script: without it, the script would hang or train on less.

Python has no hook for ``os._exit``. When a process ends without a report, its parent looks for that call in the source
of the script (``testbed.results.failures``).
"""

from __future__ import annotations

import faulthandler
import math
import mmap
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import psutil

from testbed.results.failures import STACKS_SIGNAL, Cause, FailureFiles, place_in_dump, place_of_frame

_INTERVAL_S = 0.05
_PLACE_BYTES = 1024
_DUMP_S = 0.2  # time for a process to dump its stacks
_GRACE_S = 1.0
_WATCHED_ANEW_S = 1.0  # how often the watch for hangs is renewed while turns follow each other without a pause


class Watched(Protocol):
    """A script's thread, as its watch sees it."""

    node: str
    thread: threading.Thread

    def fail(self, error: BaseException) -> None:
        """End the script with the error of one of its threads."""


_open: list[ScriptWatch] = []


@cache
def _listen_to_python() -> None:
    """Have Python tell the open watches before a script sends a signal. An audit hook cannot be removed."""

    def tell(event: str, _: tuple[Any, ...]) -> None:
        if event == "os.kill":
            for watch in tuple(_open):
                watch.before_kill(sys._getframe(1))

    sys.addaudithook(tell)


class ScriptWatch:
    """The watch of one process. ``close`` undoes what it has changed in the process.

    process  the name of the hidden files
    own      whether the process exists for the run: only then may its handlers of crashes be replaced
    """

    def __init__(self, files: FailureFiles, process: str, own: bool) -> None:
        self.files = files
        files.folder.mkdir(exist_ok=True)
        self._pid = os.getpid()
        self._current: Watched | None = None
        self._deadline_s = math.inf  # of the current turn
        self._watched_s: float | None = None  # when ``faulthandler`` was last set to end a hang
        self._lock = threading.Lock()  # guards ``_watched_s``
        self._lines: dict[str, bytes] = {}  # by node: the last known line of its script
        with open(files.hidden(process, "place"), "w+b") as file:
            file.truncate(_PLACE_BYTES)
            self._place = mmap.mmap(file.fileno(), _PLACE_BYTES)
        self._dump = open(files.hidden(process, "dump"), "wb")
        self._owners: WeakKeyDictionary[threading.Thread, Watched] = WeakKeyDictionary()
        self._before: set[threading.Thread] = set()
        self._handles_crashes = own or not faulthandler.is_enabled()
        if self._handles_crashes:
            faulthandler.enable(self._dump, all_threads=True)
        self._dumps_stacks = own or signal.getsignal(STACKS_SIGNAL) == signal.SIG_DFL
        if self._dumps_stacks:
            faulthandler.register(STACKS_SIGNAL, self._dump, all_threads=True)
        _listen_to_python()
        _open.append(self)
        self._hook = threading.excepthook
        threading.excepthook = self._on_thread_error
        self._closed = threading.Event()
        threading.Thread(target=self._sample, name="script watch", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            self._watch_no_more()
        _open.remove(self)
        threading.excepthook = self._hook
        if self._dumps_stacks:
            faulthandler.unregister(STACKS_SIGNAL)
        if self._handles_crashes:
            faulthandler.disable()
        self._dump.close()

    # ---- turns --------------------------------------------------------------------------------------------------

    def begin_turn(self, script: Watched, deadline_s: float) -> None:
        """Note that ``script`` runs from now on. The caller notices a hang after ``deadline_s`` if the GIL is free."""
        self._before = set(threading.enumerate())
        self._current = script
        if script.node in self._lines:
            self._write(self._lines[script.node])
        else:
            self._keep(script, f"{self.files.script.name}:1")
        self._deadline_s = deadline_s
        with self._lock:
            if self._watched_s is None:
                self._watch_for_hang()

    def end_turn(self) -> None:
        """Note that the script has made a call, or has ended. New threads are taken to be the script's."""
        script, self._current = self._current, None
        for thread in set(threading.enumerate()) - self._before:
            if script is not None:
                self._owners[thread] = script

    def note(self, script: Watched, frame: FrameType | None) -> None:
        """Write down the script's current line; do nothing if no frame is the user's."""
        if place := place_of_frame(frame, self.files.script):
            self._keep(script, place)

    def _keep(self, script: Watched, place: str) -> None:
        self._lines[script.node] = f"{script.node} {script.thread.ident or 0:x} {place}".encode()[:_PLACE_BYTES]
        self._write(self._lines[script.node])

    def _write(self, line: bytes) -> None:
        self._place[:] = line.ljust(_PLACE_BYTES, b"\0")

    def _sample(self) -> None:
        while not self._closed.wait(_INTERVAL_S):
            script = self._current
            if script is not None:
                self.note(script, sys._current_frames().get(script.thread.ident or 0))
            with self._lock:
                if self._current is None:
                    self._watch_no_more()
                elif self._watched_s is not None and time.monotonic() - self._watched_s > _WATCHED_ANEW_S:
                    self._watch_for_hang()

    # ---- a script that holds the interpreter ----------------------------------------------------------------------

    def _watch_for_hang(self) -> None:
        """End the process unless this is called again before the deadline, for which the GIL must be free.

        Each call replaces a thread of ``faulthandler``. So it is called now and then, and not at each turn.
        """
        if self._handles_crashes and not self._closed.is_set():
            self._watched_s = time.monotonic()
            faulthandler.dump_traceback_later(self._deadline_s + _GRACE_S, exit=True, file=self._dump)

    def _watch_no_more(self) -> None:
        if self._watched_s is not None:
            self._watched_s = None
            faulthandler.cancel_dump_traceback_later()

    # ---- what a script does to its process ----------------------------------------------------------------------

    def before_kill(self, frame: FrameType) -> None:
        """Note the line of a script that is about to send a signal, which may end this process."""
        if (script := self._caller()) is not None:
            self.note(script, frame)

    def _caller(self) -> Watched | None:
        """Return the script whose thread calls; None for testbed's own threads and for forked children."""
        thread = threading.current_thread()
        if os.getpid() != self._pid or thread is threading.main_thread():
            return None
        current = self._current
        return current if current and current.thread is thread else self._owners.get(thread, self._new(thread))

    def _new(self, thread: threading.Thread | None) -> Watched | None:
        return None if thread in self._before else self._current  # a new thread was started in this turn

    def _on_thread_error(self, args: Any) -> None:
        self._hook(args)
        thread = args.thread
        script = (self._owners.get(thread) if thread else None) or self._new(thread)
        if script is not None and args.exc_value is not None and os.getpid() == self._pid:
            script.fail(args.exc_value)

    # ---- a script that hangs ------------------------------------------------------------------------------------

    def stacks(self, script: Watched) -> Cause:
        """Return the current lines of a script and its child processes, with the stacks of all their threads."""
        frames = sys._current_frames()
        frame = frames.get(script.thread.ident or 0)
        place = place_of_frame(frame, self.files.script)
        texts = [f"the script is at {place}:\n{''.join(traceback.format_stack(frame))}"]
        for thread, owner in list(self._owners.items()):
            if owner is script and (frame := frames.get(thread.ident or 0)):
                texts.append(f"its thread {thread.name}:\n{''.join(traceback.format_stack(frame))}")
        children = self._stacks_of_children() if self._dumps_stacks else {}
        texts += [f"its process {child}:\n{text}" for child, text in children.items()]
        places = {child: place_in_dump(text, self.files.script) for child, text in children.items()}
        what = "".join(f"; its process {child} is at {where}" for child, where in places.items() if where)
        return Cause(place or self.files.script.name, what, "\n".join(texts))

    def _stacks_of_children(self) -> dict[int, str]:
        """Return the stacks of forked children, which have inherited the signal handler and the file."""
        texts = {}
        for child in [each.pid for each in psutil.Process(self._pid).children()]:
            begin = Path(self._dump.name).stat().st_size
            with suppress(ProcessLookupError):
                os.kill(child, STACKS_SIGNAL)
            time.sleep(_DUMP_S)
            texts[child] = Path(self._dump.name).read_bytes()[begin:].decode(errors="replace")
        return texts
