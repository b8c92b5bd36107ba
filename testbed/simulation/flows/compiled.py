"""The flow network compiled by numba."""

from __future__ import annotations

import functools
from collections.abc import Callable

from testbed.simulation.flows import dispatch
from testbed.simulation.flows.program import PROGRAM
from testbed.simulation.machine.compiled import compiled, network_finder, prepare, source_number

_network_at = network_finder(PROGRAM)


@functools.cache
def compiled_enter() -> Callable[..., int]:
    """Compile ``dispatch.enter`` as a function of a network's address and six numbers."""
    prepare(PROGRAM)
    sources = source_number(PROGRAM)

    def enter_at(address: int, command: int, who: int, what: int, run_number: int, time_s: float, value: float) -> int:
        if sources == 0:
            return 0
        return dispatch.enter(_network_at(address), command, who, what, run_number, time_s, value)

    return compiled(PROGRAM, enter_at)
