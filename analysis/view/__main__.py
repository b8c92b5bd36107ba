"""Serve the page of one run, whose path is the first line of standard input, until that ends; print its address.

A process of its own, of low priority, follows a run: what it imports, reads and sends costs the run no time. It
is started before the path of the run is known, so that what it imports is there by then.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

from analysis.view.opening import server_of

_NICENESS = 10
_NICENESS_BEFORE = 5  # while it is waited for
_OF_SERVING = ("pandas", "pyarrow.json")  # what is imported when a page is asked for


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
