"""A command on a node of an emulated network: ``ssh`` between nodes, and what makes a process one of a node.

Run by its file name, with the standard library only, in one of two ways:

``remote_shell.py HOSTS [OPTION…] HOST [COMMAND…]`` takes the place of ssh, with its options, which have no effect. As
with ssh, the words of the command are joined and read by a shell; without a command, the shell reads standard input.
HOSTS is a file with the namespaces by name and address.

``remote_shell.py --here HOSTNAME COMMAND…`` runs the command in the namespace in which it was started.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"  # options of ssh that are followed by a value
_CLONE_NEWNET = 0x40000000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWNS = 0x00020000
_MS_NOSUID = 2
_MS_NODEV = 4
# as ssh's own, and a shell's
_FAILED = 255
_NOT_FOUND = 127

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> int:
    """Become the command on the other node. Return only if that fails."""
    if arguments[0] == "--here":
        _take_identity(arguments[1])
        return _become(arguments[2:])
    hosts, *rest = arguments
    name, command = _parsed(rest)
    known: dict[str, list[str]] = json.loads(Path(hosts).read_text())
    target = known.get(name.rpartition("@")[2])
    if target is None:
        names = ", ".join(entry for entry in known if not entry[0].isdigit())
        return _say(f"ssh: no host '{name}' in this network; hosts: {names}", _FAILED)
    hostname, namespace = target
    with open(namespace, "rb") as file:
        if _libc.setns(file.fileno(), _CLONE_NEWNET):
            return _say(f"ssh: {name}: {os.strerror(ctypes.get_errno())}", _FAILED)
    _take_identity(hostname)
    return _become(["sh", "-c", " ".join(command)] if command else ["sh"])


def _take_identity(hostname: str) -> None:
    """Take the node's host name, and see its interfaces in /sys/class/net, where libraries look for them."""
    if not _libc.unshare(_CLONE_NEWUTS):
        _libc.sethostname(hostname.encode(), len(hostname))
    if not _libc.unshare(_CLONE_NEWNS):
        _libc.mount(b"sysfs", b"/sys", b"sysfs", _MS_NOSUID | _MS_NODEV, None)


def _become(command: list[str]) -> int:
    try:
        os.execvp(command[0], command)
    except OSError as error:
        return _say(f"{command[0]}: {error.strerror}", _NOT_FOUND)


def _parsed(arguments: list[str]) -> tuple[str, list[str]]:
    words = iter(arguments)
    for word in words:
        if not word.startswith("-"):
            return word, list(words)
        if word[-1] in _WITH_VALUE and len(word) == 2:
            next(words, None)
    sys.exit(_say("usage: ssh HOST [COMMAND…]", _FAILED))


def _say(message: str, code: int) -> int:
    print(message, file=sys.stderr)  # noqa: T201 - a command
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
