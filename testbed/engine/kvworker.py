"""The child's side of a parameter server: declare, init, push and pull keys, sliced over one or more servers.

Workers use it towards their local server, and local servers towards the global servers. Tensors are flat float32.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from testbed import buffers
from testbed.codec.base import Codec
from testbed.codec.changes import ChangesCodec
from testbed.codec.on_device import OnDevice
from testbed.codec.options import CODECS
from testbed.codec.rows import TableCodec
from testbed.codec.table import make_codec
from testbed.costs import DECODE, DECODE_VALUE
from testbed.devices.accelerator import CPU, accelerator_of
from testbed.engine import coding, sync_setup
from testbed.engine.aggregation_weights import contribution_weight
from testbed.engine.inbox import Mail
from testbed.engine.keys import CodecChoice, Declaration, KeyPush
from testbed.engine.peers import Agreed, Peers
from testbed.engine.reply import PULL_ROUND, ReplyControl, Value, merge_controls
from testbed.engine.slicing import Slicer, cut, sums_in_steps
from testbed.errors import ScenarioError
from testbed.messages import Message, MessageKind
from testbed.placing import place_of
from testbed.plan.model import Plan
from testbed.policy.events import Contribution
from testbed.policy.shard.slices import Slice
from testbed.state import State, Stateful, below, joined, take_over, under
from testbed.world import Future, Work, World

# Takes a CodecChoice (``None``: the scenario's codec) and, at a server, the name of the child at the other end.
CodecMaker = Callable[..., Codec]


def codec_maker(plan: Plan, server: str, child: str = "") -> CodecMaker:
    """Return the function that makes the codec for one end of a connection between ``server`` and a child.

    A script's choice of codec applies only to connections over the WAN.

    ``child``: the child, if the codec is for the child's end; empty for the server's end
    """
    node = plan.node(server)
    here = plan.node(child or server)
    tier = 1 if node.role == "server" else 2
    planned = plan.technique.codec_tier1 if tier == 1 else plan.technique.codec_tier2
    # the value that a local server sends to its workers contains the contributions of all data centres
    members = len(plan.training_workers) if tier == 1 else len(sync_setup.contributors(plan, node))
    contribution = sync_setup.contribution_of(plan)
    # workers that sum in main memory push the sum from there, and pass the reply on from there
    on_host = here.device.kind == CPU.type or (here.role == "worker" and sync_setup.sums_on_host(plan))

    def make(choice: CodecChoice | None = None, child: str = child) -> Codec:
        kind, options = choice if choice and tier == 2 else (planned.kind, planned.options)
        if sums_in_steps(plan, tier):
            kind = CODECS.default  # the tensors that are summed in steps are already encoded
            options = {}
        as_changes = contribution is Contribution.MODEL and CODECS[kind].has_memory and child != ""
        changes = as_changes or contribution is Contribution.DELTA
        codec = make_codec(kind, options, tier, members, plan.seed, changes, child)
        if as_changes:
            codec = ChangesCodec(codec, contribution_weight(plan, plan.node(child)))
        return codec if on_host else OnDevice(codec, accelerator_of(place_of(plan, here)))

    return make


Send = Callable[[str, Message], Awaitable[None]]


def with_stamp(message: Message, stamp: Mapping[str, int]) -> Message:
    """Return a copy of a push with the stamp of another epoch, to be sent again."""
    meta = {**message.meta, **stamp}
    again = Message(message.kind, message.key, message.round, meta, message.parts, message.priority)
    again.decoding = message.decoding
    return again


_BEFORE_ALL = (1 << 63) - 1  # the highest priority; scripts may give their pushes any other


@dataclass(frozen=True, slots=True)
class PushRoute:
    """How pushes reach a server.

    send         replaces ``World.send`` for pushes
    on_declared  is called with each server and the declaration that it receives
    memories     by name: the state that the order or overlay keeps from round to round
    """

    send: Send
    on_declared: Callable[[str, Declaration], None] | None = None
    memories: Mapping[str, Stateful] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParentNodes:
    """The servers of one child.

    names       the servers' names in the Plan
    peers       all nodes of the run
    successors  by lost server: the replica that has replaced it
    together    whether their rounds combine the contributions of all children
    replicated  whether a replica repeats their updates
    """

    names: tuple[str, ...]
    peers: Peers
    successors: Mapping[str, str] = field(default_factory=dict)
    together: bool = True
    replicated: bool = False

    def now(self) -> tuple[str, ...]:
        """Return the present servers: a successor stands in the place of its lost server."""
        if not self.successors:
            return self.names
        return tuple(self.successors.get(name, name) for name in self.names)


class KVWorker:
    """One child's view of the servers above it.

    If rounds wait for all children and the run can continue without a node, this object keeps each push until the
    reply comes. When the membership changes, the servers drop their contributions to incomplete rounds, so this object
    sends all unanswered pushes again, as they were encoded. New pushes wait until all nodes have agreed.

    first_control  the controls that came with the first values, merged over the keys pulled so far
    """

    def __init__(
        self,
        world: World,
        inbox: Mail,
        servers: ParentNodes,
        codec: CodecMaker,
        slicer: Slicer,
        priority: Callable[[int], int],
        route: PushRoute | None = None,
    ) -> None:
        """``route``: how pushes travel, if the order or overlay does not send them directly to the server."""
        self._world = world
        self._parents = servers
        self._make_codec = codec
        self._codec = codec()
        self._peers = servers.peers
        self._repeats = servers.together and servers.peers.continues
        self._declared = Declaration({})  # the declaration of all slices, by wire key
        self._tables: dict[int, TableCodec] = {}  # by wire key: the codecs of tables that travel by rows
        self._slicer = slicer
        self._priority = priority
        self._route = route or PushRoute(world.send)
        self._slices: dict[int, list[Slice]] = {}
        self._pending: dict[tuple[int, int], Future[Value]] = {}
        self._unanswered: dict[tuple[int, int], tuple[int, Message]] = {}  # pushes, each with the index of its server
        self._decoding: set[tuple[int, int]] = set()  # values that have arrived and are being decoded
        self._dropped: set[tuple[int, int]] = set()  # pushes whose replies are to be discarded on arrival
        self._declared_to: tuple[str, ...] = ()
        self._introduced: Future[None] | None = None  # set when the keys have been declared to a server's successor
        self._resumed: Mapping[str, Any] = {}  # the state in a checkpoint
        self.first_control = ReplyControl()
        inbox.on(MessageKind.VALUE, self._on_value)
        self._peers.on_agreed.append(self._on_agreed)

    @property
    def _servers(self) -> tuple[str, ...]:
        return self._parents.now()

    # ---- keys and first values ----------------------------------------------------------------------------------

    async def declare(self, declaration: Declaration) -> None:
        """Declare keys 0, 1, 2, … to the servers, in slices."""
        if declaration.codec is not None:
            self._refuse_memory(declaration.codec[0])
            self._codec = self._make_codec(declaration.codec)
        slices = cut(self._slicer, declaration, len(self._servers))
        for piece in slices:
            self._slices.setdefault(piece.key, []).append(piece)
        self._declared = declaration.of_slices(slices)
        self._tables = {wire_key: TableCodec(self._codec, width) for wire_key, width in self._declared.widths.items()}
        for wire_key, shape in self._declared.shapes.items():
            self._codec.declare(wire_key, shape)
        if self._resumed:
            self._codec.load_state(below("codec", self._resumed))
            take_over(self._states_of_tables(), below("table", self._resumed))
        await self._peers.settle()  # a joining child takes no part before the agreement
        self._declared_to = self._servers
        for index, server in enumerate(self._declared_to):
            declared = self._declared.only(piece.wire_key for piece in slices if piece.server == index)
            if self._route.on_declared is not None:
                self._route.on_declared(server, declared)
            await self._send(server, declared.message())

    async def _send(self, server: str, message: Message) -> None:
        message.meta |= self._peers.round_stamp
        await self._world.send(server, message)

    def _refuse_memory(self, kind: str) -> None:
        """Refuse a codec that a script has chosen and that the scenario's rules would refuse."""
        if self._parents.replicated and CODECS[kind].has_memory:
            raise ScenarioError(
                f"set_compression({kind!r}): a replica repeats updates with codecs without memory only; choose "
                f"{' or '.join(CODECS.where(lambda codec: not codec.has_memory))}, or write 'recovery.replicas: 0'"
            )

    def _codec_of(self, wire_key: int) -> Codec:
        return self._tables.get(wire_key, self._codec)

    def _states_of_tables(self) -> dict[str, Stateful]:
        return {str(wire_key): table for wire_key, table in self._tables.items()}

    async def init(self, key: int, tensor: Tensor, notes: Mapping[str, Any] | None = None) -> None:
        """Set the first value of a key. Exactly one node of a run does this; ``notes`` may name the optimizer."""
        for piece in self._slices[key]:
            part = await coding.exact(self._world, tensor[piece.start : piece.stop])
            await self._send(
                self._servers[piece.server],
                Message(MessageKind.INIT, piece.wire_key, PULL_ROUND, dict(notes or {}), (part,)),
            )

    async def pull(self, keys: Sequence[int], newest: bool = False) -> list[Tensor]:
        """Request the current values of ``keys``, all at once, and wait for them.

        ``newest``: request the values of the top tier, not the last values that a server in between has received.
        """
        meta = {"newest": True} if newest else {}
        for piece in [piece for key in keys for piece in self._slices[key]]:
            self._expect(piece.wire_key, PULL_ROUND)
            message = Message(MessageKind.PULL, piece.wire_key, PULL_ROUND, dict(meta))
            await self._send(self._servers[piece.server], message)
        values = []
        for key in keys:  # no comprehension: it would add a coroutine to each of these waits
            values.append(await self.value(key, PULL_ROUND))
        self.first_control = merge_controls([self.first_control, *(value.control for value in values)])
        return [value.tensor for value in values]

    # ---- rounds -------------------------------------------------------------------------------------------------

    def push(self, push: KeyPush) -> Coroutine[Any, Any, None]:
        """Send this child's contribution to a key's round; ``value`` may be awaited from this call on."""
        for piece in self._slices[push.key]:
            self._expect(piece.wire_key, push.round)
            if piece.wire_key in self._tables:
                self._ask(self._tables[piece.wire_key], piece, push.wanted)
        return self._push(push)

    @staticmethod
    def _ask(table: TableCodec, piece: Slice, wanted: Tensor | None) -> None:
        """Ask for the wanted rows of one slice, numbered from the slice's first row."""
        if wanted is not None:
            first = piece.start // table.width
            end = piece.stop // table.width
            wanted = wanted[(wanted >= first) & (wanted < end)] - first
        table.asked = wanted

    async def _push(self, push: KeyPush) -> None:
        round_ = push.round
        tensor = push.tensor
        priority = self._priority(push.key) if push.priority is None else push.priority
        if self._repeats:
            await self._peers.settle()
        self._peers.begun(round_)
        for piece in self._slices[push.key]:
            size = piece.stop - piece.start
            codec = self._codec_of(piece.wire_key)
            # a slice that is the whole key needs no view
            elements = tensor if size == tensor.numel() else tensor[piece.start : piece.stop]
            parts = await coding.encode(self._world, codec, piece.wire_key, elements, round_)
            if self._introduced is not None:
                await self._world.wait(self._introduced, "the declaration of keys to the server's successor")
            about = {**push.notes, **self._peers.round_stamp}
            message = Message(MessageKind.PUSH, piece.wire_key, round_, about, parts, priority)
            message.decoding = coding.codec_work(codec, DECODE, size, round_, parts)
            if self._repeats:
                self._unanswered[piece.wire_key, round_] = piece.server, message
            await self._route.send(self._servers[piece.server], message)

    def value(self, key: int, round_: int) -> Coroutine[Any, Any, Value]:
        """Wait for the reply to this child's push of (key, round)."""
        slices = self._slices[key]
        return self._arrival(slices[0], round_) if len(slices) == 1 else self._joined(key, round_)

    def drop(self, key: int, round_: int) -> None:
        """Discard the reply to this child's push of (key, round): nothing waits for it."""
        for piece in self._slices[key]:
            where = (piece.wire_key, round_)
            if self._pending[where].done():
                del self._pending[where]
            else:
                self._dropped.add(where)

    async def pieces(self, key: int, round_: int) -> tuple[list[Tensor], ReplyControl]:
        """Wait as ``value`` does. Return the value's slices in order, as the servers sent them, and their control."""
        found = [await self._arrival(piece, round_) for piece in self._slices[key]]
        return [piece.tensor for piece in found], merge_controls([piece.control for piece in found])

    async def _joined(self, key: int, round_: int) -> Value:
        found = [await self._arrival(piece, round_) for piece in self._slices[key]]
        tensors = [piece.tensor for piece in found]
        size_bytes = sum(tensor.nbytes for tensor in tensors)
        tensor = await self._world.compute(Work("copy", size_bytes=size_bytes), lambda: buffers.joined(tensors))
        control = merge_controls([piece.control for piece in found])
        return Value(tensor, control, max(piece.arrived_s for piece in found))

    def _expect(self, wire_key: int, round_: int) -> None:
        assert (wire_key, round_) not in self._pending, f"key {wire_key} of round {round_} was pushed or pulled twice"
        self._pending[wire_key, round_] = self._world.future()

    async def _arrival(self, piece: Slice, round_: int) -> Value:
        where = (piece.wire_key, round_)
        future = self._pending[where]
        if future.done():
            value = await future
        else:
            what = f"first value of key {piece.wire_key}"
            if round_ != PULL_ROUND:
                what = f"value of key {piece.wire_key} after round {round_}"
            value = await self._world.wait(future, f"{what} from {self._servers[piece.server]}")
        del self._pending[where]
        return value

    def _on_value(self, message: Message) -> None:
        key = message.key
        codec = self._codec_of(key)
        size = self._declared.keys[key].size
        where = (key, message.round)
        if self._repeats and (where not in self._pending or self._pending[where].done() or where in self._decoding):
            return  # both the lost server and its successor have answered, with the same bits
        self._unanswered.pop(where, None)
        if message.round == PULL_ROUND:  # first values are exact, whatever the codec
            codec.begin(key, message.parts[0])
            self._on_tensor(message, message.parts[0])
        elif codec.cost(DECODE_VALUE, size) is None:
            self._on_tensor(message, codec.decode_value(key, message.parts, size))
        else:
            self._decoding.add(where)
            self._world.spawn(self._decode(message), f"decode key {key}")

    async def _decode(self, message: Message) -> None:
        key = message.key
        round_ = message.round
        size = self._declared.keys[key].size
        tensor = await coding.decode_value(self._world, self._codec_of(key), message, size)
        self._decoding.discard((key, round_))
        self._on_tensor(message, tensor)

    def _on_tensor(self, message: Message, tensor: Tensor) -> None:
        where = (message.key, message.round)
        control = ReplyControl(**message.meta)
        if control.pace is not None:
            self._codec.adjust(control.pace[1])
        self._pending[where].set_result(Value(tensor, control, self._world.now()))
        if where in self._dropped:
            self._dropped.remove(where)
            del self._pending[where]

    async def leave(self) -> None:
        """Wait until every push is answered; then tell the servers that this child pushes no more."""
        for (key, round_), future in list(self._pending.items()):
            await self._world.wait(future, f"value of key {key} after round {round_}, before leaving")
        for server in self._servers:
            await self._send(server, Message(MessageKind.LEAVE))

    @property
    def idle(self) -> bool:
        """Whether every push and pull is answered, and every reply is taken or dropped."""
        return not self._pending

    # ---- changes of the membership, and checkpoints --------------------------------------------------------------

    def _on_agreed(self, agreed: Agreed) -> None:
        """Send unanswered pushes again. A server that has replaced another first receives the declaration of keys."""
        if not self._declared_to:
            return
        moved = [index for index, server in enumerate(self._servers) if server != self._declared_to[index]]
        self._declared_to = self._servers
        if moved:
            self._introduced = self._world.future()
        again = [(index, with_stamp(message, self._peers.round_stamp)) for index, message in self._unanswered.values()]
        if moved or again:
            self._world.spawn(self._send_again(moved, again, self._introduced), "push once more")

    async def _send_again(
        self, moved: Sequence[int], again: Sequence[tuple[int, Message]], introduced: Future[None] | None
    ) -> None:
        pieces = [piece for key in sorted(self._slices) for piece in self._slices[key]]
        for index in moved:
            placed = [piece for piece in pieces if piece.server == index]
            declaration = self._declared.only(piece.wire_key for piece in placed)
            await self._send(self._servers[index], declaration.message(_BEFORE_ALL))
            for piece in placed:
                pulled = self._pending.get((piece.wire_key, PULL_ROUND))
                if pulled is not None and not pulled.done():
                    await self._send(self._servers[index], Message(MessageKind.PULL, piece.wire_key, PULL_ROUND))
        if moved and introduced is not None:
            introduced.set_result(None)
        for index, message in again:
            await self._route.send(self._servers[index], message)

    def state(self) -> State:
        """Return the state of the codecs and of the route; between two rounds there is nothing else to keep."""
        tables = under("table", joined(self._states_of_tables()))
        return under("codec", self._codec.state()) | tables | under("route", joined(self._route.memories))

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a ``state``. Call it before keys are declared."""
        self._resumed = state
        take_over(self._route.memories, below("route", state))
