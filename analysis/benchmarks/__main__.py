"""``testbed bench NAME [ARGUMENTS]``: runs one benchmark; without a name, lists them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from analysis.benchmarks import harness

BENCHMARKS = {
    "links": "accuracy of emulated links: rate, round-trip time, loss",
    "transport": "push and pull, beside Gloo and a bare server: throughput, processor time, page faults",
    "simulator": "processor time and memory of the virtual world, against bounds; messages a second; one whole run",
    "simgrid": "the flow network against SimGrid: the end of every transfer, and speed",
    "combinations": "random combinations of techniques: each is refused with a cure, or trains",
    "advice": "advice on drawn scenarios, beside every technique in whole runs: regret, first three, coverage",
    "codecs": "encode and decode of each codec, beside a clone, a bare sum and torch.topk",
    "gpu": "first contact with a GPU: bits, kernels, copies, whole runs; --device cpu rehearses it",
}
"""Modules of this package by name. Only the chosen one is imported, as some bring torch and others must start fast."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if a result is outside its tolerance, 2 for an unknown name."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if not given or given[0] not in BENCHMARKS:
        known = "".join(f"  {name:16} {summary}\n" for name, summary in BENCHMARKS.items())
        asked_for_help = bool(given) and given[0] in ("-h", "--help")
        sys.stdout.write(f"usage: testbed bench NAME [--help] [ARGUMENTS]\n\n{known}")
        return 0 if asked_for_help else 2
    module = importlib.import_module(f"analysis.benchmarks.{given[0]}")
    return harness.main(given[0], module, given[1:])


if __name__ == "__main__":
    sys.exit(main())
