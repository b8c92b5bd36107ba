"""``ssh`` between the nodes of an emulated network: starts a command in another node's network namespace.

Run by its file name, with the standard library only: ``remote_shell.py HOSTS [OPTION…] HOST [COMMAND…]``, with the
options of ssh, which have no effect. As with ssh, the words of the command are joined and read by a shell; without a
command, the shell reads standard input. HOSTS is a file with the namespaces by name and address.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"  # options of ssh that are followed by a value
_CLONE_NEWNET, _CLONE_NEWUTS = 0x40000000, 0x04000000
_FAILED = 255  # as ssh's own


def main(arguments: list[str]) -> int:
    """Become the command on the other node. Return only if that fails."""
    hosts, *rest = arguments
    name, command = _parsed(rest)
    known: dict[str, list[str]] = json.loads(Path(hosts).read_text())
    target = known.get(name.rpartition("@")[2])
    if target is None:
        names = ", ".join(entry for entry in known if not entry[0].isdigit())
        print(f"ssh: no host '{name}' in this network; hosts: {names}", file=sys.stderr)  # noqa: T201 - a command
        return _FAILED
    hostname, namespace = target
    libc = ctypes.CDLL(None, use_errno=True)
    with open(namespace, "rb") as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            print(f"ssh: {name}: {os.strerror(ctypes.get_errno())}", file=sys.stderr)  # noqa: T201
            return _FAILED
    if not libc.unshare(_CLONE_NEWUTS):
        libc.sethostname(hostname.encode(), len(hostname))
    shell = ["sh", "-c", " ".join(command)] if command else ["sh"]
    os.execvp(shell[0], shell)


def _parsed(arguments: list[str]) -> tuple[str, list[str]]:
    """Return host and command."""
    words = iter(arguments)
    for word in words:
        if not word.startswith("-"):
            return word, list(words)
        if word[-1] in _WITH_VALUE and len(word) == 2:
            next(words, None)
    print("usage: ssh HOST [COMMAND…]", file=sys.stderr)  # noqa: T201
    sys.exit(_FAILED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
