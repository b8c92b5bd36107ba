"""A host process as the launcher sees it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass


def _nothing(status: str) -> None:
    """Leave everything as it is."""


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A host process that has been started, in a session of its own.

    process  the process; ``stop`` on its standard input ends the run
    lines    yields its lines of progress until it has ended; after an interruption, the next iteration goes on
    close    removes, once it has ended, what only the launcher and the host used; takes the run's status
    """

    process: subprocess.Popen[str]
    lines: Iterable[str]
    close: Callable[[str], None] = _nothing
