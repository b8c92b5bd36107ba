"""What lies above a server: the next tier (a local server's parents), or the optimizer (at the top)."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from testbed.engine.kvstore import KVStore, Value
from testbed.plan.model import Choice
from testbed.training.optimizers import KeyOptimizer
from testbed.world import Future, Work, World


class Upstream(Protocol):
    """Where combined contributions go and values come from."""

    async def declare(self, sizes: dict[int, int]) -> None: ...
    async def init(self, key: int, tensor: Tensor) -> None: ...
    async def pull(self, key: int) -> Tensor: ...
    async def apply(self, key: int, round_: int, total: Tensor, last: bool) -> Value: ...


class ParentServers:
    """The tier above, reached through a KVStore."""

    def __init__(self, world: World, store: KVStore) -> None:
        self._world, self._store = world, store
        self._declared: Future[None] = world.future()

    async def declare(self, sizes: dict[int, int]) -> None:
        await self._store.declare([sizes[key] for key in sorted(sizes)])
        self._declared.set_result(None)

    async def init(self, key: int, tensor: Tensor) -> None:
        await self._world.wait(self._declared, "the declaration of keys")
        await self._store.init(key, tensor)

    async def pull(self, key: int) -> Tensor:
        await self._world.wait(self._declared, "the declaration of keys")
        (value,) = await self._store.pull([key])
        return value

    async def apply(self, key: int, round_: int, total: Tensor, last: bool) -> Value:
        await self._store.push(key, round_, total, last)
        return await self._store.value(key, round_)


class Optimizing:
    """The top: values live here, and the optimizer with them; nowhere else is there any optimizer state."""

    def __init__(self, world: World, optimizer: Choice) -> None:
        self._world, self._choice = world, optimizer
        self._keys: dict[int, KeyOptimizer] = {}
        self._initialised: dict[int, Future[None]] = {}
        self._versions: dict[int, int] = {}

    async def declare(self, sizes: dict[int, int]) -> None:
        pass  # a key begins with its first value

    async def init(self, key: int, tensor: Tensor) -> None:
        assert key not in self._keys, f"key {key} was initialised twice"
        self._keys[key] = KeyOptimizer(self._choice.kind, self._choice.options, tensor)
        self._versions[key] = 0
        self._first_value(key).set_result(None)

    async def pull(self, key: int) -> Tensor:
        await self._world.wait(self._first_value(key), f"the first value of key {key} from the master worker")
        return self._keys[key].value.clone()

    async def apply(self, key: int, round_: int, total: Tensor, last: bool) -> Value:
        state = self._keys[key]
        # Adam reads and writes gradient, value and two moments
        work = Work("optimizer", round_, size_bytes=4 * total.nbytes)
        await self._world.compute(work, lambda: state.step(total))
        self._versions[key] += 1
        self._world.record("update", key=key, round=round_, version=self._versions[key])
        return Value(state.value.clone(), last)

    def _first_value(self, key: int) -> Future[None]:
        return self._initialised.setdefault(key, self._world.future())
