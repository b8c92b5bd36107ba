"""The server's side of DGT: puts pushes together again, by count or when no more comes, and never waits for ever.

Stands between a server's inbox and the server, which sees whole pushes. Every block carries key, round, position and
number of blocks, so that none is ever put into another push. What comes too late is handled as the options say.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import Tensor

from testbed.best_effort import best_effort_overhead_bytes
from testbed.codec.base import Codec
from testbed.engine.dgt_assembly import Account, Assembly
from testbed.engine.dgt_blocks import block_values, elements_of
from testbed.engine.inbox import Handler, Mail
from testbed.ids import data_center_of
from testbed.messages import Message, MessageKind
from testbed.policy.order import dgt
from testbed.policy.order.dgt import RELIABLE, Dgt
from testbed.world import World

_TICK_S = 1e-6  # below this, a wait is over


@dataclass(slots=True)
class _Traffic:
    """Best-effort messages of a round that have arrived since they were last written down."""

    first_s: float = 0.0
    payload_bytes: int = 0
    header_bytes: int = 0


@dataclass(slots=True)
class _ReceivedKey:
    """What is known of one sender's key: its pushes on the way, the last closed one, and what came late for it."""

    open: dict[int, Assembly] = field(default_factory=dict)
    accounts: dict[int, Account] = field(default_factory=dict)
    closed: int = -1
    missing: set[int] = field(default_factory=set)  # of the closed one
    elements: int = 0
    late: dict[int, Tensor] = field(default_factory=dict)
    traffic: dict[int, _Traffic] = field(default_factory=dict)


class BlockReceiver:
    """``testbed.engine.inbox.Mail`` whose handler of pushes is called with whole float32 contributions."""

    def __init__(self, world: World, inbox: Mail, options: Dgt.Options) -> None:
        self._world, self._inbox, self._options = world, inbox, options
        self._deadline_s = 0.0 if options.late == dgt.HEURISTIC_DROP else options.deadline
        self._keys: defaultdict[tuple[str, int], _ReceivedKey] = defaultdict(_ReceivedKey)
        self._heard_s: dict[str, float] = {}
        self._waiting: defaultdict[str, dict[tuple[int, int], Assembly]] = defaultdict(dict)

    def on(self, kind: MessageKind, handler: Handler) -> None:
        """Hand messages of ``kind`` to ``handler``; pushes when they are whole."""
        if kind is MessageKind.PUSH:
            self._hand_over = handler
            self._inbox.on(MessageKind.PUSH, self._on_push)
            self._inbox.on(MessageKind.BLOCK, self._on_block)
        else:
            self._inbox.on(kind, handler)

    # ---- arrivals -----------------------------------------------------------------------------------------------

    def _on_push(self, message: Message) -> None:
        sender, key, round_ = message.sender, message.key, message.round
        self._heard_s[sender] = self._world.now()
        state = self._keys[sender, key]
        state.elements = elements_of(self._options, message.parts[0])
        assembly = state.open.setdefault(round_, Assembly())
        state.accounts[round_] = assembly.begin(message, state.elements)
        if not assembly.missing or self._deadline_s <= 0:
            return self._end(assembly)
        waiting = self._waiting[sender]
        waiting[key, round_] = assembly
        if len(waiting) == 1:
            self._world.spawn(self._watch(sender), f"blocks of {sender}")
        return None

    def _on_block(self, message: Message) -> None:
        self._heard_s[message.sender] = self._world.now()
        state = self._keys[message.sender, message.key]
        if message.channel != RELIABLE:
            _count(state.traffic.setdefault(message.round, _Traffic()), message)
        if message.round <= state.closed:
            return self._on_late(state, message)
        assembly = state.open.setdefault(message.round, Assembly())
        if assembly.add(message) and assembly.push is not None and not assembly.missing:
            self._waiting[message.sender].pop((message.key, message.round), None)
            self._end(assembly)
        return None

    def _on_late(self, state: _ReceivedKey, message: Message) -> None:
        """A block of a round that is closed: of use for the next round, if it is of the last one."""
        block = message.meta["block"]
        if message.round != state.closed or block not in state.missing:
            return
        state.missing.discard(block)
        state.accounts[message.round].late += 1
        if self._options.late == dgt.NEXT_ROUND and not message.parts[0].is_meta:
            state.late[block] = block_values(message, state.elements)

    # ---- the end of a round -------------------------------------------------------------------------------------

    async def _watch(self, sender: str) -> None:
        """Until nothing of this sender is waited for: close what is open when the sender has been silent."""
        waiting = self._waiting[sender]
        while waiting:
            left_s = self._heard_s[sender] + self._deadline_s - self._world.now()
            if left_s > _TICK_S:
                await self._world.sleep(left_s)
                continue
            for where, assembly in list(waiting.items()):
                if waiting.pop(where, None):  # it may have become whole while another was asked for
                    await self._give_up(assembly)

    async def _give_up(self, assembly: Assembly) -> None:
        assert assembly.push is not None
        if self._options.late != dgt.RETRANSMIT:
            return self._end(assembly)
        push = assembly.push
        self._keys[push.sender, push.key].accounts[push.round].resent = len(assembly.missing)
        blocks = torch.tensor(sorted(assembly.missing), dtype=torch.int64)
        meta = {"of": len(push.parts[1])}
        return await self._world.send(
            push.sender, Message(MessageKind.MISSING, push.key, push.round, meta, (blocks,), push.priority)
        )

    def _end(self, assembly: Assembly) -> None:
        """No more is waited for. Where several pushes of a key are under way, they are handed over in their order."""
        push = assembly.push
        assert push is not None
        assembly.over = True
        state = self._keys[push.sender, push.key]
        for round_ in sorted(number for number, each in state.open.items() if each.push is not None):
            if not state.open[round_].over:
                return
            self._close(state.open[round_])

    def _close(self, assembly: Assembly) -> None:
        """Hand the push over as it is; what is missing may still come late."""
        push = assembly.push
        assert push is not None
        state = self._keys[push.sender, push.key]
        self._settle(push.sender, push.key, state)
        values = assembly.values(state.late)
        account = state.accounts[push.round]
        account.delivered = account.sent - len(assembly.missing)
        state.closed, state.missing, state.late = push.round, assembly.missing, {}
        del state.open[push.round]
        self._write_traffic(push.sender, push.key, push.round, state)
        self._hand_over(
            Message(
                MessageKind.PUSH, push.key, push.round, push.meta, (values,), push.priority,
                sender=push.sender, sent_at_s=push.sent_at_s,
            )
        )  # fmt: skip

    # ---- records ------------------------------------------------------------------------------------------------

    def _settle(self, sender: str, key: int, state: _ReceivedKey) -> None:
        """The closed round has had its time: what has not come by now is lost."""
        account = state.accounts.pop(state.closed, None)
        if account is not None:
            for round_ in [round_ for round_ in state.traffic if round_ <= state.closed]:
                self._write_traffic(sender, key, round_, state)
            self._world.record(
                "blocks", source=sender, key=key, round=state.closed, sent=account.sent,
                delivered=account.delivered, late=account.late, lost=account.lost, resent=account.resent,
            )  # fmt: skip

    def settle(self) -> None:
        """The run is over: write the accounts of the last rounds."""
        for (sender, key), state in self._keys.items():
            self._settle(sender, key, state)

    def _write_traffic(self, sender: str, key: int, round_: int, state: _ReceivedKey) -> None:
        """One ``transfer`` event for the blocks that came since the last: one for each would drown all else."""
        traffic = state.traffic.pop(round_, None)
        if traffic is not None:
            tier = "lan" if data_center_of(sender) == data_center_of(self._world.node) else "wan"
            self._world.record(
                "transfer", t0=round(traffic.first_s, 6), source=sender, target=self._world.node, message="block",
                key=key, round=round_, payload_bytes=traffic.payload_bytes, header_bytes=traffic.header_bytes,
                tier=tier,
            )  # fmt: skip


def _count(traffic: _Traffic, message: Message) -> None:
    if not traffic.header_bytes:
        traffic.first_s = message.sent_at_s
    traffic.payload_bytes += message.payload_bytes
    traffic.header_bytes += best_effort_overhead_bytes(message)


class Assembled(Codec):
    """A codec at the server's end for contributions that the receiver of blocks has decoded already."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def begin(self, wire_key: int, value: Tensor) -> None:
        self._codec.begin(wire_key, value)

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return self._codec.encode(wire_key, tensor)

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        return self._codec.encode_value(wire_key, value)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return self._codec.decode_value(wire_key, parts, size)

    def encoded_bytes(self, size: int) -> int:
        return self._codec.encoded_bytes(size)

    def value_bytes(self, size: int) -> int:
        return self._codec.value_bytes(size)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        """Return the contribution as it is. Raise ``ValueError`` when it has another size."""
        (tensor,) = parts
        if tensor.numel() != size:
            raise ValueError(f"{tensor.numel()} elements of key {wire_key}, where {size} were declared")
        return tensor
