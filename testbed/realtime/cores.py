"""The processor of a node whose computing takes modelled time, as in simulated runs: that of exact runs."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable

from testbed.compute_model import ComputeModel
from testbed.costs import CODING
from testbed.plan.pace import Pacer
from testbed.world import Work


def precise_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop whose timers are exact to the microsecond; those of ``epoll`` are up to 1 ms late."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


class ModelledCores:
    """Two cores: one trains, sums and optimizes, the other runs codecs.

    Each does one piece of work at a time, in the order of the calls. ``now`` is the world's clock, in s.
    """

    def __init__(self, model: ComputeModel, now: Callable[[], float]) -> None:
        self._model, self._now = model, now
        self._free_s = {True: 0.0, False: 0.0}  # by whether it is the core of codecs: when it has done its work

    async def free(self) -> None:
        """Wait until the core that trains has done its work."""
        while (left_s := self._free_s[False] - self._now()) > 0:
            await asyncio.sleep(left_s)

    def step_until(self, end_s: float) -> None:
        """Note that the core that trains does a step until then: sums and optimizers wait for its end, as simulated."""
        self._free_s[False] = max(self._free_s[False], end_s)

    async def spend(self, work: Work, pacer: Pacer) -> float:
        """Take the time of a piece of work that is no training step; return that time, in s."""
        core, now_s = work.kind in CODING, self._now()
        duration_s = self._model.duration_s(work, pacer, now_s)
        end_s = self._free_s[core] = max(now_s, self._free_s[core]) + duration_s
        await asyncio.sleep(end_s - now_s)
        return duration_s

    async def read_message(self) -> None:
        """Take the time from the arrival of a message until the role has it."""
        await asyncio.sleep(self._model.message_cost_s)
