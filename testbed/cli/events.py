"""Print the events of a run as JSON, one a line, in the order of their times; ``testbed.results.events`` lists them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HELP = "print the events of a run, finished or in progress"
_POLL_EVERY_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--kind", type=_list, default=(), metavar="KIND[,…]", help="only events of these kinds")
    parser.add_argument("--node", type=_list, default=(), metavar="NODE[,…]", help="only events that these nodes wrote")
    parser.add_argument("--follow", action="store_true", help="print what comes until the run has ended")


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def execute(arguments: argparse.Namespace) -> int:
    from testbed.results.rundir import open_run
    from testbed.results.scalars import EventTail

    run = open_run(arguments.run)
    tail = EventTail(run.events, arguments.kind, lag_s=2 * _POLL_EVERY_S)
    while arguments.follow and run.status().state in ("pending", "running"):
        _print(tail.poll(), arguments.node)
        time.sleep(_POLL_EVERY_S)
    _print(tail.rest(), arguments.node)
    return 0


def _print(events: Iterable[dict[str, Any]], nodes: tuple[str, ...]) -> None:
    import msgspec

    for event in events:
        if not nodes or event["node"] in nodes:
            sys.stdout.write(msgspec.json.encode(event).decode() + "\n")
    sys.stdout.flush()
