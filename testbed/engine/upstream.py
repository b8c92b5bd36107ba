"""What lies above a server: its parents of the next tier, or the top, where values live (``root_store``)."""

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
    """Where a server's aggregates go and its values come from.

    is_top  whether values live here, so that no tier is above
    ends    whether the run had ended when the first values were pulled
    """

    is_top = False
    ends = False

    async def declare(self, declaration: Declaration) -> None:
        """Declare the keys, as ``KVWorker.declare``."""

    @abstractmethod
    async def init(self, key: int, tensor: Tensor, notes: Mapping[str, Any]) -> None:
        """Set the key's first value; ``notes`` may name the optimizer that it is to have."""

    @abstractmethod
    async def pull(self, key: int, newest: bool = False) -> Tensor:
        """Wait for the key's value; ``newest``: that of the top tier."""

    @abstractmethod
    async def apply(self, total: AggregatedPush) -> Value:
        """Return the key's value after this aggregate."""

    def on_value_sent(self, key: int, value: Tensor, member: str, round_: int) -> bool:
        """Note that ``member``, answered in ``round_``, computes its next contribution at ``value``: the newest.

        Return whether it is to make one: False, as far as is known here, ends the run for it.
        """
        return True

    def on_joined(self, member: str) -> None:
        """Note that another process has taken the place of ``member``."""

    def on_members_lost(self, nodes: Sequence[str]) -> None:
        """Note that these nodes are lost."""

    async def leave(self) -> None:
        """Note that all children have pushed for the last time."""

    async def settle(self) -> None:
        """Wait for what ``state`` is to hold."""


class Bases(Remembering):
    """Which value each worker below a local server has, where these workers do not wait for each other.

    The top tier must know at which value a gradient was computed: for delay compensation, and for its staleness. Where
    a local server sums, that is the value that it was sent last. Where it passes on the push of each worker by itself,
    others of its workers have been sent newer values meanwhile, so each push says which one its worker has.

    A value is known by the round of this server's own push that it answers; a first value is that of a pull.
    """

    remembers = ("_current", "_had", "_forgotten")

    def __init__(self) -> None:
        self._current: dict[int, int] = {}  # by key: the value that this server has
        self._had: dict[int, dict[str, int]] = {}  # by key: the value that each worker was sent last
        self._forgotten: dict[int, list[int]] = {}  # by key: what no worker has now and the top tier keeps

    def arrived(self, key: int, round_: int) -> None:
        """Note that the value of ``key`` is now the answer to this server's push of ``round_``."""
        before = self._of_server(key)
        self._current[key] = round_
        self._forget(key, before)

    def sent(self, key: int, worker: str) -> None:
        """Note that ``worker`` is sent the value that this server has."""
        had = self._had.setdefault(key, {})
        before = had.get(worker, PULL_ROUND)
        had[worker] = self._of_server(key)
        self._forget(key, before)

    def note(self, key: int, workers: Sequence[str]) -> list[int]:
        """Return what the push of ``workers`` says: the oldest value that they have; those that no worker has now."""
        had = self._had.get(key, {})
        return [min(had.get(worker, PULL_ROUND) for worker in workers), *self._forgotten.pop(key, ())]

    def _of_server(self, key: int) -> int:
        return self._current.get(key, PULL_ROUND)

    def _forget(self, key: int, round_: int) -> None:
        if round_ not in (PULL_ROUND, self._of_server(key), *self._had.get(key, {}).values()):
            self._forgotten.setdefault(key, []).append(round_)


class ParentServers(Upstream):
    """The tier above, reached through a ``KVWorker``.

    weight            what this server counts for in a mean over its tier
    pushes_per_round  number of training workers below, where they do not wait for each other: two of them may push the
                      same round of theirs, so this server numbers the pushes that go up, one round each; otherwise 0
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
        self._begun = 0  # the first round of its own, in a run that resumes
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
