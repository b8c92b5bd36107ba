"""Workers that go on training while replies to their gradients come rounds later (``SyncPolicy.lags``).

After pushing the gradient of round r, a worker begins round r + 1 unless values of more than ``staleness`` rounds are
on their way. It takes values in the order of their rounds, so that all workers make the same steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from testbed.engine.local_work import LocalOptimizerWork, OneGradient, copying
from testbed.engine.reply import Value
from testbed.state import Remembering
from testbed.world import World

RECENT = 200  # number of past rounds from which the shortest delay is taken


class Arrivals(Remembering):
    """Measures how long a round's values take to come if several rounds are on their way at the same time.

    took  two times in seconds, empty before the first arrival: the time that the last round took beyond the delay, and
          the delay itself, the shortest time from a push to the round's first value. The first time is at most the
          time between two arrivals, so that it does not include waiting behind the previous round
    """

    remembers = ("took", "_first_s", "_last_s")

    def __init__(self) -> None:
        self.took: tuple[float, ...] = ()
        self._first_s: list[float] = []  # by recent round: seconds from the push to the first value
        self._last_s = 0.0  # when the last value of the previous round came

    def note(self, pushed_s: float, values: Sequence[Value]) -> None:
        """Note that all ``values`` of a round are here. Its contributions were pushed at ``pushed_s``."""
        first = min(values, key=lambda value: value.arrived_s)
        last_s = max(value.arrived_s for value in values)
        waited_s = max(value.control.waited_s for value in values)
        self._first_s = [*self._first_s[1 - RECENT :], first.arrived_s - pushed_s - first.control.waited_s]
        delay_s = min(self._first_s)
        took_s = last_s - pushed_s - waited_s - delay_s
        if last_s > self._last_s:  # else the clock has restarted since a checkpoint
            took_s = min(took_s, last_s - self._last_s)
        self.took = took_s, delay_s
        self._last_s = last_s


class Lagging(OneGradient):
    """Local work of one gradient whose values come late: the exchange appends to ``pending``."""

    is_late = True
    remembers: ClassVar[tuple[str, ...]] = (*OneGradient.remembers, "staleness", "_early")

    def __init__(self, *parts: Any, staleness: int) -> None:
        super().__init__(*parts)
        self.staleness = staleness
        self._keeps = False
        self._early: dict[tuple[int, int], Tensor] = {}  # by round and key: values received at a checkpoint, for later

    async def catch_up(self, world: World) -> None:
        while len(self._early_rounds) + len(self.pending) > self.staleness:
            await self._take_oldest(world)

    @property
    def _early_rounds(self) -> set[int]:
        return {round_ for round_, _ in self._early}

    async def _take_oldest(self, world: World) -> None:
        if self._early:
            round_ = min(self._early_rounds)
            keys = [key for key_round, key in self._early if key_round == round_]
            await self.take(world, round_, {key: self._early.pop((round_, key)) for key in keys})
        else:
            await self.pending.popleft()()

    async def take(self, world: World, round_: int, values: Mapping[int, Tensor]) -> None:
        if not self._keeps:
            await super().take(world, round_, values)
            return
        tensors = list(values.values())
        kept = await world.compute(copying(tensors), lambda: [value.clone() for value in tensors])
        self._early |= {(round_, key): value for key, value in zip(values, kept, strict=True)}

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


class LaggingOptimizerWork(Lagging, LocalOptimizerWork):
    """Local work with the worker's own optimizer; servers reply with late sums of gradients."""
