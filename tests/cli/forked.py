"""The command in a process forked from the tests' own: what it imports is there already, which saves three seconds."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

import psutil

from testbed import launch
from testbed.cli.main import main


@dataclass(frozen=True)
class Ended:
    """As ``subprocess.CompletedProcess``."""

    returncode: int
    stdout: str
    stderr: str


class Forked:
    """A command under way; as ``subprocess.Popen``, as far as tests need it. ``prepare`` runs in the child first."""

    def __init__(self, arguments: Sequence[str], prepare: Callable[[], None] = lambda: None) -> None:
        import_what_commands_do()
        self._files: tuple[IO[str], IO[str]] = (tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+"))
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            self._become(arguments, prepare)

    def _become(self, arguments: Sequence[str], prepare: Callable[[], None]) -> None:
        code = 99
        try:
            for descriptor, file in enumerate(self._files, start=1):
                os.dup2(file.fileno(), descriptor)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", buffering=1, closefd=False)
            sys.argv = ["testbed", *arguments]
            prepare()
            code = main(list(arguments))
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            except OSError:
                code = 120  # as Python's
            os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float) -> Ended:
        """``TimeoutError``, and the process is killed, after ``timeout`` seconds."""
        end_s = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end_s:
                for child in psutil.Process(self.pid).children(recursive=True):
                    child.kill()
                self.kill()
                raise TimeoutError(f"the command did not end in {timeout:g} s")
            time.sleep(0.005)
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read())
        assert self.returncode is not None
        return Ended(self.returncode, *texts)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def import_what_commands_do() -> None:
    """Import it before the fork: what a child imports, every child imports again."""
    import pandas  # noqa: F401
    import pyarrow.dataset  # noqa: F401
    import scipy.special  # noqa: F401

    import testbed.display.summary
    import testbed.engine.roles
    import testbed.execution.host
    import testbed.execution.sweep
    import testbed.simulation.run  # noqa: F401


def command(arguments: Sequence[str], timeout: float = 240, prepare: Callable[[], None] = lambda: None) -> Ended:
    """Run the command to its end."""
    return Forked(arguments, prepare).wait(timeout)


def simulate_here() -> None:
    """Let the command simulate in its own process, as the library does: a new one takes three seconds to begin."""
    train = launch.train

    def trained(plan: Any, *arguments: Any, **options: Any) -> Any:
        if plan.back_end == "simulate":
            options["execute"] = launch.in_this_process
        return train(plan, *arguments, **options)

    launch.train = trained
