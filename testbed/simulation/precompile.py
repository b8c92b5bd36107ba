"""Compiles the networks with numba, once for all simulations: ``python -m testbed.simulation.precompile``.

A process that has loaded the compiled networks (``load_kept``) passes them on to processes that it forks.
"""

from __future__ import annotations

import sys

from testbed.numba_cache import compiled_by_numba
from testbed.simulation.flows import compiled as flows
from testbed.simulation.flows.program import PROGRAM as FLOWS
from testbed.simulation.machine.compiled import is_kept
from testbed.simulation.packets import compiled as packets
from testbed.simulation.packets.program import PROGRAM as PACKETS

_NOT_KEPT = (
    "precompile: the compiled code of the simulator can be kept neither beside its sources nor in ~/.cache/testbed. "
    "Each long simulation will compile it anew, for some 20 s\n"
)


_NETWORKS = ((PACKETS, packets.compiled_enter), (FLOWS, flows.compiled_enter))


def load_kept() -> None:
    """Load the compiled networks that are in numba's cache."""
    for program, compiled_enter in _NETWORKS:
        if is_kept(program):
            compiled_by_numba(compiled_enter)


def main() -> int:
    for _, compiled_enter in _NETWORKS:
        compiled_by_numba(compiled_enter)
    if not all(is_kept(program) for program, _ in _NETWORKS):
        sys.stderr.write(_NOT_KEPT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
