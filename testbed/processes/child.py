"""A child process: forked from this one, or started by a command; watched, signalled, read from and ended.

This module watches and signals a child through its pidfd. Unlike a process id, a pidfd can be polled together with
other descriptors, and never refers to another process: a signal sent through it reaches this child or none. Only
``close`` reaps a child that has ended, so until then its process id refers to its process group and nothing else.

The kernel kills a forked child when the thread that forked it ends, for whatever reason. A command notices the end of
this process by end of file on its standard input, a socket or a lifeline.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import TextIOBase
from typing import IO, Any

UNEXPECTED = 70  # exit code: an error in testbed itself
_PR_SET_PDEATHSIG = 1
_CHUNK_BYTES = 1 << 16

Line = dict[str, Any]


class Child:
    """A running or ended process. ``cpu_s``: the processor time that it has used, known after ``close``.

    ``stdin`` and ``stdout``: the pipes of a command, if it was started with pipes. ``lines``: the read end of the pipe
    for the lines of a forked process.
    """

    stdin: IO[Any] | None = None
    stdout: IO[Any] | None = None

    def __init__(self, pid: int, lines: int = -1, popen: subprocess.Popen[Any] | None = None) -> None:
        self.pid = pid
        self.lines = lines
        self._popen = popen
        self._pidfd = os.pidfd_open(pid)
        self._text = bytearray()
        self._code: int | None = None
        self._closed = False
        self.cpu_s = 0.0
        if popen is not None:
            self.stdin = popen.stdin
            self.stdout = popen.stdout

    def fileno(self) -> int:
        """Return a descriptor that is readable once the process has ended."""
        return self._pidfd

    def wait(self, limit_s: float | None = None) -> int | None:
        """Return the exit code, or minus the signal; ``None`` if the process has not ended within ``limit_s``."""
        if self._code is None:
            ended = select.poll()
            ended.register(self._pidfd, select.POLLIN)
            if not ended.poll(None if limit_s is None else max(0.0, limit_s) * 1e3):
                return None
            end = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
            assert end is not None
            self._code = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        return self._code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if not self._closed:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def kill_group(self) -> None:
        """Kill the process, which leads a process group, and that group."""
        if not self._closed:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.send_signal(signal.SIGKILL)

    def end(self, grace_s: float) -> int:
        """Send SIGTERM, and SIGKILL after ``grace_s`` if the process still runs; close it and return its code."""
        self.send_signal(signal.SIGTERM)
        self.wait(grace_s)
        return self.close()

    def close(self) -> int:
        """Kill the process if it still runs, reap it, and close its pipes; return its code. May be called twice."""
        if not self._closed:
            if self.wait(0.0) is None:
                self.send_signal(signal.SIGKILL)
            code = self.wait()
            _, _, usage = os.wait4(self.pid, 0)
            self._closed = True
            self.cpu_s = usage.ru_utime + usage.ru_stime
            os.close(self._pidfd)
            if self.lines >= 0:
                os.close(self.lines)
            if self._popen is not None:
                self._popen.returncode = code
            for pipe in (self.stdin, self.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        assert self._code is not None
        return self._code

    # ---- lines of JSON ------------------------------------------------------------------------------------------

    def send(self, line: object) -> None:
        """Write a line of JSON to the child's standard input. Raise ``BrokenPipeError`` if the child has ended."""
        assert self.stdin is not None
        text = json.dumps(line) + "\n"
        self.stdin.write(text if isinstance(self.stdin, TextIOBase) else text.encode())
        self.stdin.flush()

    def read(self) -> Iterator[Line] | None:
        """Read once from the pipe of a forked process; return the complete lines, or ``None`` at end of file.

        Raise ``BlockingIOError`` if the pipe is empty and still open.
        """
        data = os.read(self.lines, _CHUNK_BYTES)
        if not data:
            return None
        self._text += data
        *lines, self._text = self._text.split(b"\n")
        return map(json.loads, lines)


def fork(body: Callable[[int], int], *, hold: Iterable[signal.Signals] = (), close: Iterable[int] = ()) -> Child:
    """Return a forked child that runs ``body``.

    body   gets the write end of the pipe for the child's lines, and returns the exit code
    hold   signals that are blocked from before the fork until ``body`` unblocks them; otherwise, the handlers of this
           process could run in the child
    close  descriptors of this process that the child does not need

    An exception in the child ends it with ``UNEXPECTED``. It does not unwind the stack that the child has inherited,
    whose ``finally`` blocks would end other children and remove files.
    """
    read, write = os.pipe()
    parent = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, hold)
    try:
        pid = os.fork()
        if pid == 0:
            code = UNEXPECTED
            try:
                die_with(parent)
                for descriptor in (read, *close):
                    os.close(descriptor)
                code = body(write)
            finally:
                os._exit(code)  # not sys.exit: what the parent has registered with atexit is not for its children
    except OSError:  # too many processes
        os.close(read)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(write)
    os.set_blocking(read, False)
    return Child(pid, read)


def spawn(command: Sequence[str], **popen: Any) -> Child:
    """Return a child that runs a command; keywords go to ``subprocess.Popen``. Raise ``OSError`` if it cannot start."""
    process = subprocess.Popen(command, **popen)
    return Child(process.pid, popen=process)


def run_to_its_end(command: Sequence[str], **popen: Any) -> int:
    """Run a command in its own process group to its end; return its code. An interrupt kills it and its group."""
    child = spawn(command, process_group=0, stdin=subprocess.DEVNULL, **popen)
    try:
        child.wait()
    except BaseException:
        child.kill_group()
        raise
    finally:
        code = child.close()
    return code


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send the calling process a signal when the thread that started it ends.

    Raise ``OSError`` if the kernel refuses. No signal comes if the parent has ended before the call.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def die_with(parent: int) -> None:
    """Let the kernel kill this process, just forked, when its parent ends. Raise ``OSError`` if the kernel refuses."""
    die_with_parent()
    if os.getppid() != parent:  # the parent ended between fork and prctl
        os._exit(UNEXPECTED)


def first_to_end(children: Iterable[Child]) -> Child:
    """Wait until one of ``children`` has ended, and return it."""
    by_descriptor = {child.fileno(): child for child in children}
    ended = select.poll()  # unlike select(2), it takes any descriptor
    for descriptor in by_descriptor:
        ended.register(descriptor, select.POLLIN)
    return by_descriptor[ended.poll()[0][0]]


def end_all(children: Iterable[Child], grace_s: float) -> None:
    """End several children at the same time, as ``Child.end`` does."""
    running = list(children)
    for child in running:
        child.send_signal(signal.SIGTERM)
    end_s = time.monotonic() + grace_s
    for child in running:
        child.wait(end_s - time.monotonic())
    for child in running:
        child.send_signal(signal.SIGKILL)
    for child in running:
        child.close()


def close_in_children(*descriptors: int) -> None:
    """Close descriptors in every process that is forked from this one.

    A process that such a child forks does not close them again, as other files may have the same numbers there.
    """
    left = list(descriptors)

    def close() -> None:
        while left:
            os.close(left.pop())

    os.register_at_fork(after_in_child=close)
