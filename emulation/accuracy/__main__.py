"""``python -m emulation.accuracy [PART]``: measures emulated links on this machine, in a sandbox of its own."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from emulation.accuracy import ceiling, contract, replay, streams, topologies
from emulation.sandbox import Sandbox, is_inside

DEADLINE_S = 3600.0
PARTS = {"replay": replay, "streams": streams, "ceiling": ceiling, "topologies": topologies}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is the part's."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(given)
    if not is_inside():
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        argv = [sys.executable, "-m", "emulation.accuracy", *given]
        with Sandbox(argv, env={**os.environ, "PYTHONPATH": path}) as sandbox:
            return sandbox.wait(DEADLINE_S)
    return int(options.run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m emulation.accuracy", description=_sentence(contract.__doc__))
    contract.add_arguments(parser)
    parser.set_defaults(run=contract.run)
    parts = parser.add_subparsers(metavar="PART", help="instead of the contract")
    for name, part in PARTS.items():
        described = parts.add_parser(name, help=_sentence(part.__doc__))
        part.add_arguments(described)
        described.set_defaults(run=part.run)
    return parser


def _sentence(docstring: str | None) -> str:
    """The first line of what a part says of itself, without its command."""
    return (docstring or "").split("\n", 1)[0].rsplit("``: ", 1)[-1]


if __name__ == "__main__":
    sys.exit(main())
