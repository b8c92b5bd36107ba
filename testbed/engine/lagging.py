"""Gradients of which the answers come rounds later: a worker goes on meanwhile (``SyncPolicy.lags``).

A worker that has pushed the gradient of round r begins round r + 1 unless values of more than ``staleness`` rounds are
on their way. Values are taken in the order of their rounds, so that all workers make the same steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from testbed.engine.local_work import LocalOptimizerWork, OneGradient, copying
from testbed.engine.reply import Value
from testbed.state import Remembering, State, below, under
from testbed.world import World

RECENT = 200  # rounds of which one has had the shortest delay


class Arrivals(Remembering):
    """How long rounds take that are on their way together.

    took  seconds that the last one took beyond the delay, and the delay: the shortest time until a first value was
          there. What a round waited for the one before it does not count: there is no more between two arrivals than
          one round takes. Empty before the first arrival
    """

    remembers = ("took", "_first_s", "_last_s")

    def __init__(self) -> None:
        self.took: tuple[float, ...] = ()
        self._first_s: list[float] = []  # of each of the last rounds
        self._last_s = 0.0  # when the last value of the round before was there

    def note(self, pushed_s: float, values: Sequence[Value]) -> None:
        """The ``values`` of a round are here whose contributions were pushed at ``pushed_s``."""
        first = min(values, key=lambda value: value.arrived_s)
        last_s = max(value.arrived_s for value in values)
        waited_s = max(value.control.waited_s for value in values)
        self._first_s = [*self._first_s[1 - RECENT :], first.arrived_s - pushed_s - first.control.waited_s]
        delay_s = min(self._first_s)
        took_s = last_s - pushed_s - waited_s - delay_s
        if last_s > self._last_s:  # else the clock has begun anew since a checkpoint
            took_s = min(took_s, last_s - self._last_s)
        self.took = took_s, delay_s
        self._last_s = last_s


class Lagging(OneGradient):
    """What is added to the work of one gradient; the exchange appends to ``pending``."""

    is_late = True
    remembers: ClassVar[tuple[str, ...]] = (*OneGradient.remembers, "staleness")

    def __init__(self, *parts: Any, staleness: int) -> None:
        super().__init__(*parts)
        self.staleness = staleness
        self._keeps = False
        self._early: dict[int, dict[int, Tensor]] = {}  # by round and key: what came at a checkpoint, to be taken later

    async def catch_up(self, world: World) -> None:
        while len(self._early) + len(self.pending) > self.staleness:
            await self._take_oldest(world)

    async def _take_oldest(self, world: World) -> None:
        if self._early:
            round_ = min(self._early)
            await self.take(world, round_, self._early.pop(round_))
        else:
            await self.pending.popleft()()

    async def take(self, world: World, round_: int, values: Mapping[int, Tensor]) -> None:
        if not self._keeps:
            await super().take(world, round_, values)
            return
        tensors = list(values.values())
        kept = await world.compute(copying(tensors), lambda: {key: value.clone() for key, value in values.items()})
        self._early[round_] = kept

    async def receive_pending(self) -> None:
        self._keeps = True
        await self.take_pending()
        self._keeps = False

    async def finish(self, world: World) -> bool:
        """End with the values after the last round: the same at all workers."""
        changed = bool(self._early or self.pending)
        while self._early or self.pending:
            await self._take_oldest(world)
        return changed

    def state(self) -> State:
        early = {f"{round_}/{key}": each for round_, values in self._early.items() for key, each in values.items()}
        return super().state() | under("early", early)

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._early = {}
        for name, value in below("early", state).items():
            round_, key = map(int, name.split("/"))
            self._early.setdefault(round_, {})[key] = value


class LaggingGradient(Lagging):
    """The optimizer stands at the servers, which answer with values."""


class LaggingOptimizerWork(Lagging, LocalOptimizerWork):
    """The optimizer is the worker's own; servers answer with sums of gradients."""
