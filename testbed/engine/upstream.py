"""What lies above a server: the next tier (a local server's parents), or the top, where values live and change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
from torch import Tensor

from testbed.engine.checkpoint import below, under
from testbed.engine.kvworker import CodecChoice, KVWorker, ReplyControl, Value
from testbed.training.learner import State
from testbed.training.optimizers import KeyOptimizer
from testbed.world import Future, Work, World


class AggregatedPush(msgspec.Struct):
    """The combined contribution of ``members`` to (key, round); ``notes`` are those of their pushes, merged,
    ``priority`` theirs."""

    key: int
    round: int
    tensor: Tensor
    members: tuple[str, ...]
    notes: dict[str, Any] = msgspec.field(default_factory=dict)
    priority: int = 0


class Upstream(Protocol):
    """Where aggregates go and values come from. ``is_top``: values live here, and no tier is above."""

    is_top: bool

    async def declare(self, sizes: dict[int, int], codec: CodecChoice | None) -> None:
        """The keys; ``codec``: what a script has chosen for them."""

    async def init(self, key: int, tensor: Tensor, notes: Mapping[str, Any]) -> None:
        """The key's first value; ``notes`` may name the optimizer that it is to have."""

    async def pull(self, key: int) -> Tensor: ...

    @property
    def first(self) -> ReplyControl:
        """What came with the values that were pulled."""

    async def apply(self, total: AggregatedPush) -> Value:
        """The key's value after this contribution."""

    def on_value_sent(self, key: int, value: Tensor, member: str) -> None:
        """``member`` is being sent ``value``: what it computes next, it computes there."""

    async def leave(self) -> None:
        """All children have pushed for the last time."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, between two rounds."""

    def load_state(self, state: Mapping[str, Any]) -> None: ...


class ParentServers:
    """The tier above, reached through a KVStore.

    weight      what this server counts for in a mean over its tier
    late        this server may have come late: it says nothing before it knows in which epoch (``came_in``)
    own_rounds  number what goes up by itself: where workers do not wait for each other, two of them may push the same
                round of theirs, and each is a round of this server
    """

    is_top = False

    def __init__(
        self, world: World, store: KVWorker, weight: float = 1.0, own_rounds: bool = False, late: bool = False
    ) -> None:
        self._world, self._store, self._weight, self._own_rounds = world, store, weight, own_rounds
        self._here: Future[None] | None = world.future() if late else None
        self._next_round: dict[int, int] = {}
        self._declared: Future[None] = world.future()

    def came_in(self, epoch: int) -> None:
        """This server has come back, or joined, in that epoch."""
        self._store.epoch = epoch
        if self._here is not None:
            self._here.set_result(None)

    def fail_over_to(self, server: str, heir: str) -> None:
        """``heir`` takes the place of ``server``, if that is one of ours."""
        self._store.fail_over_to(server, heir)

    async def declare(self, sizes: dict[int, int], codec: CodecChoice | None) -> None:
        if self._here is not None:
            await self._world.wait(self._here, "the scheduler's word that it is part of the run")
        await self._store.declare([sizes[key] for key in sorted(sizes)], codec)
        self._declared.set_result(None)

    async def init(self, key: int, tensor: Tensor, notes: Mapping[str, Any]) -> None:
        await self._world.wait(self._declared, "the declaration of keys")
        await self._store.init(key, tensor, notes)

    async def pull(self, key: int) -> Tensor:
        await self._world.wait(self._declared, "the declaration of keys")
        (value,) = await self._store.pull([key])
        return value

    @property
    def first(self) -> ReplyControl:
        return self._store.first

    async def apply(self, total: AggregatedPush) -> Value:
        round_ = self._round_of(total)
        tensor = total.tensor if self._weight == 1.0 else total.tensor * self._weight
        await self._store.push(total.key, round_, tensor, total.notes, total.priority)
        return await self._store.value(total.key, round_)

    def _round_of(self, total: AggregatedPush) -> int:
        if not self._own_rounds:
            return total.round
        round_ = self._next_round.get(total.key, self.first.begin)
        self._next_round[total.key] = round_ + 1
        return round_

    def on_value_sent(self, key: int, value: Tensor, member: str) -> None:
        pass

    async def leave(self) -> None:
        await self._store.leave()

    def state(self) -> dict[str, Any]:
        return {str(key): round_ for key, round_ in self._next_round.items()} | under("codec", self._store.state())

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._next_round = {int(key): int(round_) for key, round_ in state.items() if "/" not in key}
        self._store.load_state(below("codec", state))


class ParameterState(Protocol):
    """One key at the top tier: its value, and what a combined contribution does to it."""

    value: Tensor

    def step(self, total: Tensor, member: str | None = None) -> None: ...
    def pulled(self, member: str, value: Tensor) -> None: ...
    def state(self) -> State: ...
    def load_state(self, state: Mapping[str, Any]) -> None: ...


class OverwriteUpdate:
    """The combined contribution is the new value: means of models (HFA), or sums for the workers' own optimizers."""

    def __init__(self, value: Tensor) -> None:
        self.value = value.clone()

    def step(self, total: Tensor, member: str | None = None) -> None:
        self.value = total

    def pulled(self, member: str, value: Tensor) -> None:
        pass

    def state(self) -> State:
        return {"value": self.value}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.value = state["value"].clone()


class RootStore:
    """The top tier: values live here, and the optimizer with them; nowhere else is there any optimizer state.

    A contribution of one member alone (asynchronous algorithms) is applied as that member's: ``update`` events tell
    how stale it was, in versions of the key applied since the member was last sent it.
    """

    is_top = True

    def __init__(self, world: World, make_key: Callable[[Tensor], ParameterState]) -> None:
        self._world, self._make_key = world, make_key
        self._keys: dict[int, ParameterState] = {}
        self._initialised: dict[int, Future[None]] = {}
        self._versions: dict[int, int] = {}
        self._seen: dict[tuple[int, str], int] = {}
        self.first = ReplyControl()

    async def declare(self, sizes: dict[int, int], codec: CodecChoice | None) -> None:
        pass  # a key begins with its first value

    async def init(self, key: int, tensor: Tensor, notes: Mapping[str, Any]) -> None:
        assert key not in self._keys, f"key {key} was initialised twice"
        if "optimizer" in notes:
            kind, options = notes["optimizer"]
            self._keys[key] = KeyOptimizer(kind, options, tensor)
        else:
            self._keys[key] = self._make_key(tensor)
        self._versions[key] = 0
        self._first_value(key).set_result(None)

    async def pull(self, key: int) -> Tensor:
        await self._world.wait(self._first_value(key), f"the first value of key {key} from the master worker")
        return self._keys[key].value.clone()

    async def apply(self, total: AggregatedPush) -> Value:
        key, state = total.key, self._keys[total.key]
        member = total.members[0] if len(total.members) == 1 else None
        # Adam reads and writes gradient, value and two moments
        work = Work("optimizer", total.round, size_bytes=4 * total.tensor.nbytes)
        await self._world.compute(work, lambda: state.step(total.tensor, member))
        stale = max(self._versions[key] - self._seen.get((key, each), 0) for each in total.members)
        self._versions[key] += 1
        self._world.record(
            "update", key=key, round=total.round, version=self._versions[key],
            contributors=list(total.members), staleness=stale,
        )  # fmt: skip
        return Value(state.value.clone(), ReplyControl(last=bool(total.notes.get("last"))))

    def on_value_sent(self, key: int, value: Tensor, member: str) -> None:
        self._seen[key, member] = self._versions[key]
        self._keys[key].pulled(member, value)

    async def leave(self) -> None:
        pass

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {f"version/{key}": version for key, version in self._versions.items()}
        state |= {f"seen/{key}/{member}": version for (key, member), version in self._seen.items()}
        for key, content in self._keys.items():
            state |= under(f"key/{key}", content.state())
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._versions = {int(key): int(version) for key, version in below("version", state).items()}
        for name, version in below("seen", state).items():
            key, member = name.split("/", 1)
            self._seen[int(key), member] = int(version)
        for number in self._versions:
            content = below(f"key/{number}", state)
            self._keys[number] = self._make_key(content["value"])
            self._keys[number].load_state(content)
            self._first_value(number).set_result(None)

    def values(self) -> list[Tensor]:
        """Current values in the order of keys."""
        return [self._keys[key].value for key in sorted(self._keys)]

    def _first_value(self, key: int) -> Future[None]:
        return self._initialised.setdefault(key, self._world.future())


__all__ = [
    "AggregatedPush",
    "KeyOptimizer",
    "OverwriteUpdate",
    "ParameterState",
    "ParentServers",
    "RootStore",
    "Upstream",
]
