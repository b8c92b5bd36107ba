"""Let numba compile what simulations load, once: ``python -m testbed.simulation.precompile``, as ``setup.sh`` does."""

from __future__ import annotations

import sys

from testbed.numba_cache import compiled_by_numba
from testbed.simulation import kernels
from testbed.simulation.packets import compiled

_NOT_KEPT = (
    "precompile: the compiled code of the simulator can be kept neither beside its sources nor in ~/.cache/testbed. "
    "Each long simulation will compile it anew, for some 20 s\n"
)


def main() -> int:
    compiled_by_numba(compiled.compiled_enter)
    compiled_by_numba(kernels.compiled)
    if not compiled.is_kept():
        sys.stderr.write(_NOT_KEPT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
