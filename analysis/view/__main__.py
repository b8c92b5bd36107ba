"""Serve the page of one run until standard input ends; print its address. The first line of input is the run's path.

This is a process of low priority, so that its imports, reads and answers cost the run no time. It is started before the
path of the run is known, so that its imports are done by then.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

from analysis.view.opening import server_of

_NICENESS = 10
_NICENESS_BEFORE = 5  # until the page is served
_OF_SERVING = ("pandas", "pyarrow.json")  # modules that would otherwise be imported at the first request


def main() -> None:
    os.nice(_NICENESS_BEFORE)
    for module in _OF_SERVING:
        import_module(module)
    if run := sys.stdin.readline().rstrip("\n"):
        server = server_of([Path(run)])
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        os.nice(_NICENESS - _NICENESS_BEFORE)
        sys.stdin.read()
        server.close()


if __name__ == "__main__":
    main()
