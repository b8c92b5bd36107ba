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
_NAMED = 40  # all kinds of events are fewer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--kind", type=_list, default=(), metavar="KIND[,…]", help="only events of these kinds")
    parser.add_argument("--node", type=_list, default=(), metavar="NODE[,…]", help="only events that these nodes wrote")
    parser.add_argument("--follow", action="store_true", help="go on printing new events until the run has ended")


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def execute(arguments: argparse.Namespace) -> int:
    from testbed.results.rundir import open_run
    from testbed.results.scalars import EventTail

    run = open_run(arguments.run)
    tail = EventTail(run.events, arguments.kind, lag_s=2 * _POLL_EVERY_S)
    printed = 0
    while arguments.follow and run.status().state in ("pending", "running"):
        printed += _print(tail.poll(), arguments.node)
        time.sleep(_POLL_EVERY_S)
    printed += _print(tail.rest(), arguments.node)
    if not printed:
        _say_what_there_is(run.events, arguments)
    return 0


def _print(events: Iterable[dict[str, Any]], nodes: tuple[str, ...]) -> int:
    """Print the events of these nodes; return how many there are."""
    import msgspec

    printed = 0
    for event in events:  # one by one: a long run has millions
        if not nodes or event["node"] in nodes:
            sys.stdout.write(msgspec.json.encode(event).decode() + "\n")
            printed += 1
    sys.stdout.flush()
    return printed


def _say_what_there_is(events: Path, arguments: argparse.Namespace) -> None:
    """Name the requested kinds and nodes for which the run has no event."""
    from testbed.results.events import read
    from testbed.suggest import nearest_or_all

    known: dict[str, set[str]] = {"kind": set(), "node": set()}
    for event in read(events):
        for name, found in known.items():
            found.add(str(event.get(name)))
    for name, found in known.items():
        for asked in getattr(arguments, name):
            if asked not in found:
                cure = nearest_or_all(asked, sorted(found), _NAMED)
                print(f"--{name} {asked}: this run has no such event ({cure})", file=sys.stderr)
