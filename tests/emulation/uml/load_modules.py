"""Loads modules of the user-mode kernel with what they need, by the system call: kmod may not be installed."""

import ctypes
import os
import sys
from pathlib import Path

FINIT_MODULE, EEXIST = 313, 17  # of x86-64

root = Path("/usr/lib/uml/modules", os.uname().release)
needs = {}
for line in (root / "modules.dep").read_text().splitlines():
    name, _, rest = line.partition(":")
    needs[name] = rest.split()
files = {Path(name).name.split(".")[0].replace("-", "_"): name for name in needs}
libc = ctypes.CDLL(None, use_errno=True)
for wanted in sys.argv[1:]:
    first = files.get(wanted.replace("-", "_"))
    for name in [*reversed(needs[first]), first] if first else []:
        with open(root / name, "rb") as file:
            if libc.syscall(FINIT_MODULE, file.fileno(), b"", 0) and ctypes.get_errno() != EEXIST:
                print(name, os.strerror(ctypes.get_errno()))  # noqa: T201
