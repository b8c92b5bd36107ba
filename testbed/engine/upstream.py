"""The upstream of a server: the servers of the next tier or, at the top tier, the store of values (``root_store``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from testbed import buffers
from testbed.engine.aggregation import AggregatedPush
from testbed.engine.keys import Declaration, KeyPush
from testbed.engine.kvworker import KVWorker
from testbed.engine.reply import PULL_ROUND, Value
from testbed.engine.summed_store import SummedStore
from testbed.state import Remembering
from testbed.world import Future, Work, World


class Upstream(Remembering, ABC):
    """Takes a server's aggregates and returns the new values.

    is_top  whether this is the store of values, with no tier above
    ends    whether the run had already ended when the first values were pulled
    """

    is_top = False
    ends = False

    async def declare(self, declaration: Declaration) -> None:
        """Declare the keys, as ``KVWorker.declare``."""

    @abstractmethod
    async def init(self, key: int, tensor: Tensor, notes: Mapping[str, Any]) -> None:
        """Set the key's first value; ``notes`` may name the optimizer for this key."""

    @abstractmethod
    async def pull(self, key: int, newest: bool = False) -> Tensor:
        """Wait for the key's value; ``newest``: the value of the top tier."""

    @abstractmethod
    async def apply(self, total: AggregatedPush) -> Value:
        """Pass on an aggregate; return the key's value after it."""

    def on_value_sent(self, key: int, value: Tensor, member: str, round_: int) -> bool:
        """Note that ``member`` is sent ``value``, the newest one, in reply to its push of ``round_``.

        The member computes its next contribution at this value. Return whether it is to make one; False ends the run
        for this member.
        """
        return True

    def on_joined(self, member: str) -> None:
        """Note that another process has taken the place of ``member``."""

    def on_members_lost(self, nodes: Sequence[str]) -> None:
        """Note that these nodes are lost."""

    async def leave(self) -> None:
        """Note that all children have pushed for the last time."""

    async def settle(self) -> None:
        """Wait until everything that ``state`` returns is up to date."""


class Bases(Remembering):
    """Tracks which value each worker below a local server has, if these workers do not wait for each other.

    The top tier must know at which value a gradient was computed, for delay compensation and for its staleness. If a
    local server sums, this is the last value that the server received. If it passes on each worker's push by itself,
    other workers may have received newer values meanwhile, so each push names the value that its worker has.

    The name of a value is the round of this server's push to which it was the reply; first values have ``PULL_ROUND``.
    """

    remembers = ("_current", "_had", "_forgotten")

    def __init__(self) -> None:
        self._current: dict[int, int] = {}  # by key: the value that this server has
        self._had: dict[int, dict[str, int]] = {}  # by key: the value that each worker was sent last
        self._forgotten: dict[int, list[int]] = {}  # by key: values that no worker has now, but the top tier keeps

    def arrived(self, key: int, round_: int) -> None:
        """Note that this server has received the reply to its push of ``round_``: the new value of ``key``."""
        before = self._of_server(key)
        self._current[key] = round_
        self._forget(key, before)

    def sent(self, key: int, worker: str) -> None:
        """Note that this server sends ``worker`` its current value."""
        had = self._had.setdefault(key, {})
        before = had.get(worker, PULL_ROUND)
        had[worker] = self._of_server(key)
        self._forget(key, before)

    def note(self, key: int, workers: Sequence[str]) -> list[int]:
        """Return the note for a push of ``workers``: the oldest value that they have, then all values to forget.

        The top tier can forget a value that no worker has any more. This call returns each of these once.
        """
        had = self._had.get(key, {})
        return [min(had.get(worker, PULL_ROUND) for worker in workers), *self._forgotten.pop(key, ())]

    def _of_server(self, key: int) -> int:
        return self._current.get(key, PULL_ROUND)

    def _forget(self, key: int, round_: int) -> None:
        if round_ not in (PULL_ROUND, self._of_server(key), *self._had.get(key, {}).values()):
            self._forgotten.setdefault(key, []).append(round_)


class ParentServers(Upstream):
    """The tier above, reached through a ``KVWorker``.

    weight            this server's weight in a mean over its tier
    pushes_per_round  0 if the workers below wait for each other; otherwise their number. Two such workers may push the
                      same round, so this server numbers its own pushes: each one is a round of its own
    first_round       returns the first round of the workers below
    """

    remembers: ClassVar[tuple[str, ...]] = ("_begun", "_next_round", "_bases", "_store")

    def __init__(
        self,
        world: World,
        store: KVWorker | SummedStore,
        weight: float = 1.0,
        pushes_per_round: int = 0,
        first_round: Callable[[], int] = lambda: 0,
    ) -> None:
        self._world = world
        self._store = store
        self._weight = weight
        self._pushes_per_round = pushes_per_round
        self._first_round = first_round
        self._bases = Bases() if pushes_per_round > 1 else None
        self._next_round: dict[int, int] = {}
        self._begun = 0  # this server's first round; not 0 if the workers below joined late
        self._declared: Future[None] = world.future()

    @property
    def ends(self) -> bool:  # type: ignore[override]
        return self._store.first_control.last

    async def declare(self, declaration: Declaration) -> None:
        self._begun = max(self._begun, self._first_round() * self._pushes_per_round)
        await self._store.declare(declaration)
        self._declared.set_result(None)

    async def init(self, key: int, tensor: Tensor, notes: Mapping[str, Any]) -> None:
        await self._world.wait(self._declared, "the declaration of keys by a child")
        await self._store.init(key, tensor, notes)

    async def pull(self, key: int, newest: bool = False) -> Tensor:
        await self._world.wait(self._declared, "the declaration of keys by a child")
        (value,) = await self._store.pull([key], newest)
        return value

    async def apply(self, total: AggregatedPush) -> Value:
        round_ = self._round_of(total)
        tensor = total.tensor
        notes = total.notes
        if self._bases is not None:
            notes = notes | {"base": self._bases.note(total.key, total.members)}
        if self._weight != 1.0:
            work = Work("copy", total.round, size_bytes=tensor.nbytes)
            tensor = await self._world.compute(work, lambda: buffers.computed(torch.mul, total.tensor, self._weight))
        await self._store.push(KeyPush(total.key, round_, tensor, notes, total.priority, total.wanted))
        value = await self._store.value(total.key, round_)
        if self._bases is not None:
            self._bases.arrived(total.key, round_)
        return value

    def on_value_sent(self, key: int, value: Tensor, member: str, round_: int) -> bool:
        if self._bases is not None:
            self._bases.sent(key, member)
        return True

    def _round_of(self, total: AggregatedPush) -> int:
        if not self._pushes_per_round:
            return total.round
        round_ = self._next_round.get(total.key, self._begun)
        self._next_round[total.key] = round_ + 1
        return round_

    async def leave(self) -> None:
        await self._store.leave()
