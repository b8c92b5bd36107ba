"""Measure what this machine can do: emulated links, transport, the simulation's speed, selectors of sparse codecs.

Without a name, list the benchmarks; `testbed bench NAME --help` shows what one measures and its arguments.
"""

from __future__ import annotations

import argparse

HELP = "measure this machine: emulated links, transport, simulation, codecs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "given", nargs=argparse.REMAINDER, metavar="NAME [ARGUMENTS]", help="a benchmark, and its arguments"
    )


def execute(arguments: argparse.Namespace) -> int:
    from analysis.benchmarks.__main__ import main

    return main(arguments.given or ["--help"])
