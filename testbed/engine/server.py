"""The server of one tier: collects its children's pushes, and does what the synchronisation policy decides.

A local server and a global server are this same role with another upstream.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from testbed.codec.base import Codec
from testbed.engine.inbox import Inbox
from testbed.engine.kvstore import PULL_ROUND, Value
from testbed.engine.upstream import Upstream
from testbed.messages import Kind, Message
from testbed.policy.events import Combine, Effect, SyncPolicy
from testbed.world import Work, World

CodecMaker = Callable[[], Codec]


class Server:
    """Values of keys, and the contributions of rounds not yet complete. Knows sizes by its children's declarations."""

    def __init__(self, world: World, inbox: Inbox, policy: SyncPolicy, codec: CodecMaker, upstream: Upstream) -> None:
        self._world, self._policy, self._upstream = world, policy, upstream
        self._make_codec = codec
        self._codecs: dict[str, Codec] = {}  # one per child: a codec may have memory
        self._sizes: dict[int, int] = {}
        self._values: dict[int, Value] = {}
        self._contributions: dict[tuple[int, int], dict[str, Tensor]] = {}
        self._last: set[tuple[int, int]] = set()
        self._pulls: dict[int, list[str]] = {}
        inbox.on(Kind.DECLARE, self._on_declare)
        inbox.on(Kind.INIT, self._on_init)
        inbox.on(Kind.PUSH, self._on_push)
        inbox.on(Kind.PULL, self._on_pull)

    def values(self) -> list[Tensor]:
        """Current values in the order of keys."""
        return [self._values[key].tensor for key in sorted(self._values)]

    def _on_declare(self, message: Message) -> None:
        sizes = dict(zip(message.meta["keys"], message.meta["sizes"], strict=True))
        self._codecs[message.sender] = self._make_codec()
        if not self._sizes:
            self._sizes = sizes
            self._world.spawn(self._upstream.declare(sizes), "declare keys")
        assert self._sizes == sizes, f"{message.sender} declares other keys than the children before it"

    def _on_init(self, message: Message) -> None:
        self._world.spawn(self._upstream.init(message.key, message.parts[0]), f"init key {message.key}")

    def _on_pull(self, message: Message) -> None:
        if message.key in self._values:
            self._world.spawn(self._answer(message.key, PULL_ROUND, (message.sender,)), "answer a pull")
            return
        waiting = self._pulls.setdefault(message.key, [])
        waiting.append(message.sender)
        if len(waiting) == 1:
            self._world.spawn(self._fetch(message.key), f"fetch key {message.key}")

    async def _fetch(self, key: int) -> None:
        self._values[key] = Value(await self._upstream.pull(key))
        await self._answer(key, PULL_ROUND, tuple(self._pulls.pop(key)))

    def _on_push(self, message: Message) -> None:
        key, round_, member = message.key, message.round, message.sender
        tensor = self._codecs[member].decode(key, message.parts, self._sizes[key])
        self._contributions.setdefault((key, round_), {})[member] = tensor
        if message.meta.get("last"):
            self._last.add((key, round_))
        effects = self._policy.on_push(member, key, round_, self._world.now())
        if effects:
            self._world.spawn(self._carry_out(effects), f"round {round_} of key {key}")

    async def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Combine):
                await self._combine(effect)
            else:
                await self._answer(effect.key, effect.round, effect.members)

    async def _combine(self, effect: Combine) -> None:
        where = (effect.key, effect.round)
        contributions = self._contributions.pop(where)
        tensors = [contributions[member] for member in effect.members]
        work = Work("sum", effect.round, size_bytes=sum(tensor.nbytes for tensor in tensors))
        total = await self._world.compute(work, lambda: sum_in_order(tensors))
        last = where in self._last
        self._last.discard(where)
        self._values[effect.key] = await self._upstream.apply(effect.key, effect.round, total, last)

    async def _answer(self, key: int, round_: int, members: tuple[str, ...]) -> None:
        value = self._values[key]
        meta = {"last": True} if value.last else {}
        for member in members:
            parts = self._payload(member, key, round_, value.tensor)
            await self._world.send(member, Message(Kind.VALUE, key, round_, dict(meta), parts))

    def _payload(self, member: str, key: int, round_: int, value: Tensor) -> tuple[Tensor, ...]:
        codec = self._codecs[member]
        if round_ != PULL_ROUND:
            return codec.encode_value(key, value)
        codec.begin(key, value)
        return (value,)


def sum_in_order(tensors: list[Tensor]) -> Tensor:
    """Sum in the order given, so that the result does not depend on who arrived first."""
    if len(tensors) == 1:
        return tensors[0]
    total = tensors[0] + tensors[1]
    for tensor in tensors[2:]:
        total += tensor
    return total
