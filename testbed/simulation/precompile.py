"""Let numba compile what simulations load, once: ``python -m testbed.simulation.precompile``, as ``setup.sh`` does."""

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


def main() -> int:
    compiled_by_numba(packets.compiled_enter)
    compiled_by_numba(flows.compiled_enter)
    if not (is_kept(PACKETS) and is_kept(FLOWS)):
        sys.stderr.write(_NOT_KEPT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
