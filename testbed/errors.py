"""The errors that a user may meet, and the exit code of the command for each.

TestbedError                     1
├── ScenarioError                2   the scenario or the command line is wrong; found before the run, or by a node
├── CapabilityError              3   this machine cannot do what was asked; the message says what would help
├── RunFailed                    4   a node failed; the message names node, step and cause
│   ├── NodeLost                 4   a node died or fell silent; a restart can cure this
│   ├── WaitTimeout              5   a named wait passed its deadline, or no node can advance
│   ├── NoProgress               5   the clock of an exact run stands still
│   ├── NetworkMismatch          6   the emulated links do not behave as the Plan says
│   └── Diverged                 7   numbers of the training are no longer finite; the results so far are kept
└── Interrupted                130   the user ended the run; the results so far are kept

Asserts are for our own mistakes; these classes are for the user's and the machine's.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_WRONG_PLACE = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)
FULL = (errno.ENOSPC, errno.EDQUOT)
EXHAUSTED = {
    errno.EMFILE: "raise the limit of this process (`ulimit -n`), or use fewer nodes",
    errno.ENFILE: "raise the limit of the machine (fs.file-max), or use fewer nodes",
    errno.EAGAIN: "no further process can be started: raise the limit of the user (`ulimit -u`), or use fewer nodes",
    errno.ENOMEM: "use fewer nodes, or a machine with more memory",
    errno.EFBIG: "raise the limit of the size of files (`ulimit -f`)",
}


class TestbedError(Exception):
    """Base class. ``str(error)`` is one complete message: what, where, and how to cure it."""

    __test__ = False  # the name is not a pytest class
    exit_code = 1


class ScenarioError(TestbedError):
    """A scenario, trace, topology or option cannot be accepted. Holds every problem found, one per line."""

    exit_code = 2

    def __init__(self, problems: str | list[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class CapabilityError(TestbedError):
    """The machine lacks something that the run needs."""

    exit_code = 3


def of_os(error: OSError, directory: Path | None = None, unnamed: str = "") -> TestbedError | None:
    """Turn an ``OSError`` about an unusable path or exhausted resources into an error for users.

    Return ``None`` if the error is of another kind.

    directory  the run directory. If it is gone, that is the error. An error that names no path is about ``directory``
    unnamed    the place of an error that names no path, if there is no ``directory``
    """
    if directory is not None and not directory.is_dir():
        return RunFailed(f"{directory}: the run directory has gone while the run was under way")
    if error.errno in EXHAUSTED:  # another path would not help
        return CapabilityError(f"{os.strerror(error.errno).lower()}: {EXHAUSTED[error.errno]}")
    place = error.filename or directory or unnamed
    if not place or error.errno not in (*_WRONG_PLACE, *FULL):
        return None
    problem = f"{place}: {(error.strerror or str(error)).lower()}"
    if error.errno in FULL:
        return CapabilityError(f"{problem}; make room")
    return ScenarioError(f"{problem}; give another place")


class RunFailed(TestbedError):
    """A node failed during the run."""

    exit_code = 4


class NodeLost(RunFailed):
    """A node died or fell silent. Unlike other failures, a restart can cure this."""


class WaitTimeout(RunFailed):
    """A wait passed its deadline: ``node`` waited for ``waiting_for`` since ``since_s``."""

    exit_code = 5

    def __init__(self, node: str, waiting_for: str, since_s: float, deadline_s: float) -> None:
        self.node = node
        self.waiting_for = waiting_for
        self.since_s = since_s
        self.deadline_s = deadline_s
        super().__init__(
            f"{node} waited {deadline_s:g} s for {waiting_for} (since t = {since_s:.3f} s); "
            f"see `testbed show RUN` for who was waiting for whom"
        )


class NoProgress(RunFailed):
    """The clock of an exact run stands still, because a program computes without end."""

    exit_code = 5


class NetworkMismatch(RunFailed):
    """A measured link is outside its tolerance before training starts."""

    exit_code = 6


class Diverged(RunFailed):
    """The training has diverged so far that it cannot go on."""

    exit_code = 7
    cure = "lower the learning rate, or clip gradients"


class Interrupted(TestbedError):
    """Ctrl-C or SIGTERM."""

    exit_code = 130
