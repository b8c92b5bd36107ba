"""The child's side of a parameter server: declare, init, push, pull, with keys sliced over one or more servers.

A worker uses it towards its local server, a local server towards the global servers. Tensors are flat float32.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.engine.inbox import Mail
from testbed.messages import Message, MessageKind
from testbed.policy.shard.slices import Slice
from testbed.world import Future, World

PULL_ROUND = -1  # a plain pull belongs to no round


class ReplyControl(msgspec.Struct):
    """What comes down with a value.

    last      nobody goes on after this round
    waited_s  how long this child's contribution lay at servers, waiting for others, on all tiers together
    steps     local steps for the next round, by worker; empty: as before
    begin     with a first value: the round that this child is to begin with (it has joined a run under way)
    """

    last: bool = False
    waited_s: float = 0.0
    steps: Mapping[str, int] = msgspec.field(default_factory=dict)
    begin: int = 0

    def to_meta(self) -> dict[str, Any]:
        """As it travels: of one size for all plain rounds, so that headers are the same bytes in every world."""
        said: dict[str, Any] = {"waited_s": float(self.waited_s)}
        if self.last:
            said["last"] = self.last
        if self.steps:
            said["steps"] = dict(self.steps)
        if self.begin:
            said["begin"] = self.begin
        return said


class Value(msgspec.Struct):
    """The value of a key after a round."""

    tensor: Tensor
    advice: ReplyControl = msgspec.field(default_factory=ReplyControl)


Slicer = Callable[[tuple[int, ...], int], tuple[Slice, ...]]
PriorityOf = Callable[[int], int]
CodecChoice = tuple[str, dict[str, Any]]  # a codec, and its options, that a script has chosen
CodecMaker = Callable[..., Codec]  # of nothing, or of what was said
Declared = Callable[[str, dict[int, int]], None]
Send = Callable[[str, Message], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PushRoute:
    """How pushes get to a server. ``declared`` is told which wire keys, of how many elements, live on which server."""

    send: Send
    declared: Declared | None = None


class KVWorker:
    """One child's view of the servers above it."""

    def __init__(
        self, world: World, inbox: Mail, servers: tuple[str, ...], codec: CodecMaker, slicer: Slicer,
        priority: PriorityOf, way: PushRoute | None = None,
    ) -> None:  # fmt: skip
        """``way``: how pushes go, where order or overlay send them in their own way."""
        self._world, self._servers, self._make_codec, self._codec = world, servers, codec, codec()
        self._slicer, self._priority = slicer, priority
        self._way = way or PushRoute(world.send)
        self._slices: dict[int, list[Slice]] = {}
        self._pending: dict[tuple[int, int], Future[Value]] = {}
        self._sizes: dict[int, int] = {}
        self.epoch = 0  # in which this child has come; whoever knows of a later one in which it left takes no notice
        self.keeps = False  # what is pushed, until it is answered, for whoever takes the server's place
        self._unanswered: dict[tuple[int, int], Message] = {}
        self._introduced: Future[None] | None = None
        self.first = ReplyControl()  # what came with the first values, of all keys together
        inbox.on(MessageKind.VALUE, self._on_value)

    def fail_over_to(self, server: str, heir: str) -> None:
        """``heir`` takes the place of ``server``: it is told the keys, and again all that has not been answered."""
        if server not in self._servers:
            return
        self._servers = tuple(heir if each == server else each for each in self._servers)
        self._introduced = self._world.future()
        waits = [where for where, future in self._pending.items() if not future.done()]
        open_ = [self._unanswered[where] for where in waits if where in self._unanswered]  # others are yet to be sent
        open_ += [Message(MessageKind.PULL, *where) for where in waits if where[1] == PULL_ROUND]
        self._world.spawn(self._introduce(heir, open_, self._introduced), f"go on with {heir}")

    async def _introduce(self, heir: str, again: list[Message], introduced: Future[None]) -> None:
        pieces = [piece for key in sorted(self._slices) for piece in self._slices[key]]
        waits_for_first_values = any(message.kind is MessageKind.PULL for message in again)
        said = {} if waits_for_first_values else {"since": self.first.begin}
        if pieces:
            meta = said | self._came()
            await self._world.send(heir, Message(MessageKind.DECLARE, meta=meta, parts=_declaration(pieces)))
        introduced.set_result(None)
        for message in again:
            await self._world.send(heir, message)

    async def declare(self, sizes: Sequence[int], codec: CodecChoice | None = None) -> None:
        """Tell the servers which keys there are: key ``k`` has ``sizes[k]`` elements. ``codec``: a script's own."""
        if codec is not None:
            self._codec = self._make_codec(codec)
        slices = self._slicer(tuple(sizes), len(self._servers))
        for piece in slices:
            self._slices.setdefault(piece.key, []).append(piece)
            self._sizes[piece.wire_key] = piece.stop - piece.start
        for index, server in enumerate(self._servers):
            mine = [piece for piece in slices if piece.server == index]
            if self._way.declared is not None:
                self._way.declared(server, {piece.wire_key: piece.stop - piece.start for piece in mine})
            said = ({"codec": list(codec)} if codec else {}) | self._came()
            await self._world.send(server, Message(MessageKind.DECLARE, meta=said, parts=_declaration(mine)))

    def _came(self) -> dict[str, int]:
        return {"epoch": self.epoch} if self.epoch else {}

    async def init(self, key: int, tensor: Tensor, notes: Mapping[str, Any] | None = None) -> None:
        """Give a key its first value, everywhere. Exactly one node of a run does this, and may name its optimizer."""
        for piece in self._slices[key]:
            part = tensor[piece.start : piece.stop]
            await self._world.send(
                self._servers[piece.server],
                Message(MessageKind.INIT, piece.wire_key, PULL_ROUND, dict(notes or {}), (part,)),
            )

    def push(
        self, key: int, round_: int, tensor: Tensor, notes: Mapping[str, Any] | None = None, priority: int | None = None
    ) -> Coroutine[Any, Any, None]:
        """Send this child's contribution to a key's round, with ``notes``; ``value`` may wait for the answer at once.

        ``priority`` is the one that the contribution came with from below; otherwise the order axis says.
        """
        for piece in self._slices[key]:
            self._expect(piece.wire_key, round_)
        return self._push(key, round_, tensor, dict(notes or {}), self._priority(key) if priority is None else priority)

    async def _push(self, key: int, round_: int, tensor: Tensor, notes: dict[str, Any], priority: int) -> None:
        for piece in self._slices[key]:
            parts = self._codec.encode(piece.wire_key, _part(tensor, piece))
            message = Message(MessageKind.PUSH, piece.wire_key, round_, dict(notes), parts, priority)
            if self._introduced is not None:
                await self._world.wait(self._introduced, "an introduction to the server's heir")
            if self.keeps:
                self._unanswered[piece.wire_key, round_] = message
            await self._way.send(self._servers[piece.server], message)

    def value(self, key: int, round_: int) -> Coroutine[Any, Any, Value]:
        """The answer to this child's push of (key, round)."""
        slices = self._slices[key]
        return self._arrival(slices[0], round_) if len(slices) == 1 else self._whole(slices, round_)

    async def _whole(self, slices: Sequence[Slice], round_: int) -> Value:
        pieces = [await self._arrival(piece, round_) for piece in slices]
        return Value(torch.cat([piece.tensor for piece in pieces]), merged([piece.advice for piece in pieces]))

    async def pull(self, keys: Sequence[int]) -> list[Tensor]:
        """The current values of ``keys``, asked for all at once; waits until they have one."""
        for piece in [piece for key in keys for piece in self._slices[key]]:
            self._expect(piece.wire_key, PULL_ROUND)
            await self._world.send(self._servers[piece.server], Message(MessageKind.PULL, piece.wire_key, PULL_ROUND))
        values = []
        for key in keys:  # no comprehension, which would be one more coroutine for everybody who waits here
            values.append(await self.value(key, PULL_ROUND))
        self.first = merged([self.first, *(value.advice for value in values)])
        return [value.tensor for value in values]

    async def leave(self) -> None:
        """Tell the servers that this child pushes no more, once all that it pushed is answered."""
        for (key, round_), future in list(self._pending.items()):
            await self._world.wait(future, f"round {round_} of key {key}, before leaving")
        for server in self._servers:
            await self._world.send(server, Message(MessageKind.LEAVE))

    def state(self) -> dict[str, Any]:
        """What its codec remembers; between two rounds there is nothing else."""
        return self._codec.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Inverse of ``state``."""
        self._codec.load_state(state)

    def _expect(self, wire_key: int, round_: int) -> None:
        assert (wire_key, round_) not in self._pending, f"key {wire_key}, round {round_} is already on its way"
        self._pending[wire_key, round_] = self._world.future()

    async def _arrival(self, piece: Slice, round_: int) -> Value:
        where = (piece.wire_key, round_)
        future = self._pending[where]
        if future.done():
            value = await future
        else:
            what = "first value" if round_ == PULL_ROUND else f"round {round_}"
            source = self._servers[piece.server]
            value = await self._world.wait(future, f"{what} of key {piece.wire_key} from {source}")
        del self._pending[where]
        return value

    def _on_value(self, message: Message) -> None:
        key = message.key
        where = (key, message.round)
        if self.keeps and (where not in self._pending or self._pending[where].done()):
            return  # the server that is gone had answered it as well
        self._unanswered.pop(where, None)
        if message.round == PULL_ROUND:  # first values are exact, whatever the codec
            tensor = message.parts[0]
            self._codec.begin(key, tensor)
        else:
            tensor = self._codec.decode_value(key, message.parts, self._sizes[key])
        self._pending[where].set_result(Value(tensor, ReplyControl(**message.meta)))


def _declaration(pieces: Sequence[Slice]) -> tuple[Tensor, Tensor]:
    """Keys and their sizes."""
    keys = torch.tensor([piece.wire_key for piece in pieces], dtype=torch.int64)
    return keys, torch.tensor([piece.stop - piece.start for piece in pieces], dtype=torch.int64)


def _part(tensor: Tensor, piece: Slice) -> Tensor:
    """The elements of a slice; a whole key needs no view of itself."""
    return tensor if piece.stop - piece.start == tensor.numel() else tensor[piece.start : piece.stop]


def merged(advice: Sequence[ReplyControl]) -> ReplyControl:
    """What several answers of one round say together: the longest wait, and everybody's steps."""
    steps = {worker: count for each in advice for worker, count in each.steps.items()}
    last, waited_s = any(each.last for each in advice), max(each.waited_s for each in advice)
    return ReplyControl(last, waited_s, steps, max(each.begin for each in advice))
