"""Build the user-mode kernel for ``--on exact``, once per user, or show what it was made of.

The source (Debian's package of Linux) is downloaded and its SHA-256 checked; the kernel goes to
``~/.cache/testbed/exact`` (``XDG_CACHE_HOME``). No root is needed. It takes about 10 minutes of processor time.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from testbed.cli.options import Outcome, whole

HELP = "build the kernel of exact runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("build", "show"), help="build: make the kernel; show: what it was made of")
    parser.add_argument("--source", type=Path, metavar="FILE", help="the source package, instead of a download")
    parser.add_argument("--jobs", type=whole, metavar="N", help="compilers at a time; default: one per core")


def execute(arguments: argparse.Namespace) -> Outcome:
    from emulation.exact import kernel

    if arguments.action == "build":
        found = kernel.build(lambda line: None if arguments.json else print(line), arguments.source, arguments.jobs)
    else:
        found = kernel.require()
    facts = {"path": found.path, **found.to_dict()}
    if arguments.json:
        return {"kind": "exact", **facts}
    width = max(map(len, facts))
    print("\n".join(f"{name:{width}}  {value}" for name, value in facts.items()))
    return 0
