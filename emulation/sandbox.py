"""The sandbox of an emulated run: process, mount and network namespaces of its own that die with the launcher.

Everything that an emulation creates (interfaces, bridges, queues, rules, helper processes) is inside. Nothing is ever
created in the machine's own network namespace, so a launcher that is killed leaves nothing to clean up, names cannot
clash, and two runs can be up at once. Three things end a sandbox when its launcher dies: the parent-death signal of
``unshare``, ``--kill-child`` below it, and the end of the lifeline pipe that the sandbox's first process reads.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import CapabilityError
from testbed.processes import first

MARKER = Path("/run/testbed/sandbox")
_OWN = ("/run", "/dev/shm")  # folders of which a sandbox has its own (``testbed.processes.first``)
_NEEDED_CAPABILITIES = 1 << 21 | 1 << 12  # CAP_SYS_ADMIN, CAP_NET_ADMIN (linux/capability.h)


def is_inside() -> bool:
    """Return whether the calling process is in a sandbox made by this module."""
    try:
        return MARKER.exists()
    except PermissionError:  # outside, that directory is root's own
        return False


def require_seen(paths: Iterable[Path]) -> None:
    """Raise ``CapabilityError`` for a path that a sandbox does not see, as it has its own folder there."""
    for path in paths:
        for own in _OWN:
            if path.resolve().is_relative_to(own):
                problem = f"is hidden in an emulated run, which has a {own} of its own"
                raise CapabilityError(f"{path}: {problem}; use another folder")


def needs_user_namespace() -> bool:
    """Return whether this process makes namespaces in a user namespace only: it is not root, or not all of root.

    A container's root may lack the needed capabilities: CAP_SYS_ADMIN, and CAP_NET_ADMIN for networks in namespaces.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (effective,) = (int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return os.geteuid() != 0 or effective & _NEEDED_CAPABILITIES != _NEEDED_CAPABILITIES


def sandbox_command(argv: Sequence[str], *, lifeline: int | None = None, rootless: bool | None = None) -> list[str]:
    """Return the command that runs ``argv`` in a sandbox, with a user namespace if ``rootless``; default: if needed.

    ``lifeline``: an inherited read end of a pipe; its end of file ends the sandbox. The command must be started by a
    thread that lives as long as the launcher (the kernel's parent-death signal follows the thread).
    """
    user = ["--map-root-user"] if (needs_user_namespace() if rootless is None else rootless) else []
    namespaces = ["--fork", "--pid", "--mount", "--net", "--mount-proc", "--kill-child"]
    life = ["--lifeline", str(lifeline)] if lifeline is not None else []
    init = [sys.executable, "-S", "-E", first.__file__, "--sandbox", *life, "--"]
    return ["setpriv", "--pdeathsig", "KILL", "unshare", *user, *namespaces, *init, *argv]


class Sandbox:
    """A command running in a sandbox, started from outside. ``close`` (or the launcher's death) ends all of it.

    Further keywords go to ``subprocess.Popen``; descriptors in ``pass_fds`` reach the command.
    """

    def __init__(self, argv: Sequence[str], *, rootless: bool | None = None, **popen: Any) -> None:
        read_end, self._lifeline = os.pipe()
        inherited = (*popen.pop("pass_fds", ()), read_end)
        command = sandbox_command(argv, lifeline=read_end, rootless=rootless)
        try:
            self.process = subprocess.Popen(command, pass_fds=inherited, **popen)
        finally:
            os.close(read_end)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the command's end; return its exit status. Raise ``subprocess.TimeoutExpired`` if it is late."""
        return self.process.wait(timeout_s)

    def close(self) -> None:
        """End everything inside at once and wait for it."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        try:
            self.process.wait(2.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
