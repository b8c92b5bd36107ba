"""Open a page that plays a run back, or follows it while it runs. It also shows several runs side by side, or a sweep.

The page is served only to this machine, at an address that cannot be guessed, until Ctrl-C. It loads nothing from
elsewhere. With --save it is one file that you can share.
"""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

from testbed.cli.options import Outcome, whole, write
from testbed.errors import ScenarioError

HELP = "open a page that plays a run back or follows it, or shows a sweep"


_LAST_PORT = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "a run directory, finished or in progress; several side by side; "
    about += "the directory of a sweep or of several jobs, or a folder of runs"
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help=about)
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="write the page to one self-contained file, and do not serve it"
    )
    parser.add_argument("--port", type=whole, default=0, help="port of the page; default: a free one")
    parser.add_argument("--no-browser", action="store_true", help="print the address instead of opening a browser")


def execute(arguments: argparse.Namespace) -> Outcome:
    from analysis.view.opening import saved_page_of, server_of
    from testbed.display.page import show

    if arguments.save is not None:
        if arguments.save.suffix.lower() not in (".html", ".htm"):
            raise ScenarioError(f"--save {arguments.save}: names a page; write {arguments.save.with_suffix('.html')}")
        write(arguments.save, saved_page_of(arguments.runs))
        if arguments.json:
            return {"kind": "view", "file": str(arguments.save)}
        print(arguments.save)
        return 0
    if arguments.port > _LAST_PORT:
        raise ScenarioError(f"--port {arguments.port}: the last port is {_LAST_PORT}")
    try:
        server = server_of(arguments.runs, arguments.port)
    except OSError as error:
        raise ScenarioError(f"--port {arguments.port}: {error.strerror}; leave it out for one that is free") from error
    try:
        show(server.url, browser=not arguments.no_browser)
        print("Ctrl-C ends it", file=sys.stderr, flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        return 0
    finally:
        server.close()
    return 0
