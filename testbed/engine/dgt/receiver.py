"""The server's side of DGT: assembles pushes from their blocks, and never waits for a block for ever.

Stands between a server's inbox and the server, which sees whole pushes. Every block carries key, round, its number and
the number of blocks, so that none can be put into another push.

A push is closed when all its blocks are here, or when its sender has said that all have left it (BLOCKS_SENT) and then
no block has come for the duration of the deadline: the rest is then queued behind other traffic, or lost. The server
gets closed pushes, in the order of their rounds, with zeros for the missing blocks. The option ``late`` says what
becomes of these:

zero            a block that comes after the close is dropped
next-round      a block that comes after the close is added to the same sender's next round of the key
retransmit      the push stays open: MISSING asks the sender for the missing blocks, which it sends reliably
heuristic-drop  the push is closed when its reliable part comes; blocks that come later are dropped

A round's account (blocks sent, delivered, late, lost) is written when the next round of the key is closed, because
late blocks may come until then.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from testbed.best_effort import best_effort_overhead_bytes
from testbed.codec.over import CodecOver
from testbed.costs import DECODE, Cost
from testbed.engine.dgt.blocks import BLOCKS_DECODED, block_values, elements_of, epoch_of
from testbed.engine.inbox import Handler, Mail
from testbed.engine.kvworker import CodecMaker
from testbed.engine.slicing import dgt_options
from testbed.ids import data_center_of
from testbed.messages import Message, MessageKind
from testbed.plan.model import NodePlan, Plan
from testbed.policy.order import dgt
from testbed.policy.order.dgt import RELIABLE, SKIPPED, Dgt
from testbed.state import PartsByKey, Remembering, State
from testbed.world import World

_TICK_S = 1e-6  # a shorter wait counts as over: because of rounding, so short a sleep might not advance the clock


@dataclass(slots=True)
class Assembly:
    """A push and the account of its blocks, which may come before the reliable part, in any order, and repeatedly.

    early    blocks that came before the reliable part, by number
    missing  numbers of the best-effort blocks that have not come
    closed   whether the wait for them has ended
    heard_s  when the latest block, or BLOCKS_SENT, came
    sent     number of best-effort blocks
    late     how many of these came after the close
    resent   how many of these the server asked for again
    """

    push: Message | None = None
    early: dict[int, Message] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    closed: bool = False
    heard_s: float = 0.0
    sent: int = 0
    late: int = 0
    resent: int = 0
    _elements: int = 0  # of a block
    _size: int = 0  # elements of the payload
    _rows: Tensor = field(default_factory=lambda: torch.empty(0))  # [blocks, elements], float32

    def begin(self, push: Message, elements: int) -> None:
        """Take the reliable part, which says what channel each block travels on."""
        important, channels = push.parts
        self.push = push
        self._elements = elements
        reliable = channels == RELIABLE
        best_effort = ~reliable & (channels != SKIPPED)
        self._size = important.numel() + int((~reliable).sum()) * elements
        self._fill(important, reliable)
        self.missing = set(torch.nonzero(best_effort).view(-1).tolist())
        self.sent = len(self.missing)
        for message in self.early.values():
            self.add(message)
        self.early = {}

    def _fill(self, important: Tensor, reliable: Tensor) -> None:
        count = len(reliable)
        if important.is_meta:
            self._rows = torch.empty(count, self._elements, device="meta")
            return
        self._rows = torch.zeros(count, self._elements)
        pad = int(reliable.sum()) * self._elements - important.numel()
        self._rows[reliable] = torch.nn.functional.pad(important.float(), (0, pad)).view(-1, self._elements)

    def add(self, message: Message) -> bool:
        """Take a block. Return False if it does not belong to this push, or is here already."""
        block = message.meta["block"]
        if self.push is None:
            is_new = block not in self.early
            self.early.setdefault(block, message)
            return is_new
        if block not in self.missing or message.meta["of"] != len(self._rows):
            return False
        if not self._rows.is_meta:
            self._rows[block] = block_values(message, self._elements)
        self.missing.discard(block)
        return True

    def values(self, late: dict[int, Tensor]) -> Tensor:
        """Return the contribution, float32; missing blocks are zero. ``late`` blocks of the round before are added."""
        if not self._rows.is_meta:
            for block, values in late.items():
                self._rows[block] += values
        rows = self._rows
        self._rows = torch.empty(0)  # this push takes no more blocks: those that come late are only counted
        return rows.view(-1)[: self._size]


@dataclass(slots=True)
class _BlockTraffic:
    """Best-effort messages of a round that have arrived since the last ``transfer`` event."""

    first_s: float = 0.0
    payload_bytes: int = 0
    header_bytes: int = 0

    def count(self, message: Message) -> None:
        if not self.header_bytes:
            self.first_s = message.sent_at_s
        self.payload_bytes += message.payload_bytes
        self.header_bytes += best_effort_overhead_bytes(message)


@dataclass(slots=True)
class _ReceivedKey(Remembering):
    """What is known of one sender's key.

    open          pushes that are not handed over yet, by round
    last          the push that was handed over last; its account is not recorded yet
    closed_round  the round of ``last``. Blocks of it and of earlier rounds are late
    late          late blocks of ``last``, which are added to the next round
    """

    remembers: ClassVar[tuple[str, ...]] = ("closed_round", "late", "elements")

    open: dict[int, Assembly] = field(default_factory=dict)
    last: Assembly | None = None
    closed_round: int = -1
    late: dict[int, Tensor] = field(default_factory=dict)
    elements: int = 0  # of a block
    traffic: defaultdict[int, _BlockTraffic] = field(default_factory=lambda: defaultdict(_BlockTraffic))


class BlockReceiver(Remembering):
    """``testbed.engine.inbox.Mail`` whose handler of pushes is called with whole float32 contributions."""

    remembers = ("_keys",)

    def __init__(self, world: World, inbox: Mail, options: Dgt.Options) -> None:
        self._world = world
        self._inbox = inbox
        self._options = options
        self._keys: PartsByKey[tuple[str, int], _ReceivedKey] = PartsByKey(lambda _: _ReceivedKey())

    def on(self, kind: MessageKind, handler: Handler) -> None:
        """Hand messages of ``kind`` to ``handler``; pushes when they are whole."""
        if kind is MessageKind.PUSH:
            self._hand_over = handler
            self._inbox.on(MessageKind.PUSH, self._on_push)
            self._inbox.on(MessageKind.BLOCK, self._on_block)
            self._inbox.on(MessageKind.BLOCKS_SENT, self._on_blocks_sent)
        else:
            self._inbox.on(kind, handler)

    @staticmethod
    def codecs(make_codec: CodecMaker) -> CodecMaker:
        """Return a maker of codecs for the server: pushes from here are decoded already, and cost as decoded blocks."""
        return lambda *choice: _CodecOfBlocks(make_codec(*choice))

    def state(self) -> State:
        """Return the state for a checkpoint between two rounds: late blocks that have arrived, for the next round.

        A checkpoint ends the wait for late blocks: blocks that have not arrived by then are lost. So the state of a run
        contains no state of the network.
        """
        for (sender, key), kept in self._keys.items():
            self._settle(sender, key, kept)
            kept.last = None
        return super().state()

    def forget(self, sender: str) -> None:
        """Drop the incomplete pushes of ``sender``, which is lost or repeats its round."""
        for key in [key for name, key in self._keys if name == sender]:
            kept = self._keys.pop((sender, key))
            self._settle(sender, key, kept)
            for round_ in list(kept.traffic):
                self._record_traffic(sender, key, round_, kept)
            for assembly in kept.open.values():
                assembly.closed = True  # which ends ``_watch``

    # ---- arrivals -----------------------------------------------------------------------------------------------

    def _on_push(self, message: Message) -> None:
        state = self._keys[message.sender, message.key]
        state.elements = elements_of(self._options, message.parts[0])
        assembly = state.open.setdefault(message.round, Assembly())
        assembly.begin(message, state.elements)
        if not assembly.missing or self._options.late == dgt.HEURISTIC_DROP:
            self._close(assembly)

    def _on_blocks_sent(self, message: Message) -> None:
        assembly = self._keys[message.sender, message.key].open.get(message.round)
        if assembly is not None and assembly.missing and not assembly.closed:
            assembly.heard_s = self._world.now()
            self._world.spawn(self._watch(assembly), f"blocks of {message.sender}")

    def _on_block(self, message: Message) -> None:
        state = self._keys[message.sender, message.key]
        if message.channel != RELIABLE:
            state.traffic[message.round].count(message)
        if message.round <= state.closed_round:
            return self._on_late(state, state.last, message)
        assembly = state.open.setdefault(message.round, Assembly())
        assembly.heard_s = self._world.now()
        if assembly.add(message) and assembly.push is not None and not assembly.missing:
            self._close(assembly)
        return None

    def _on_late(self, state: _ReceivedKey, last: Assembly | None, message: Message) -> None:
        """Count a block of a closed round; keep it for the next round if it is of the last closed one."""
        block = message.meta["block"]
        if last is None or last.push is None or message.round != last.push.round or block not in last.missing:
            return
        last.missing.discard(block)
        last.late += 1
        if self._options.late == dgt.NEXT_ROUND and not message.parts[0].is_meta:
            state.late[block] = block_values(message, state.elements)

    # ---- the end of a round -------------------------------------------------------------------------------------

    async def _watch(self, assembly: Assembly) -> None:
        """Wait until no block has come for the duration of the deadline, then give up on the missing blocks."""
        while (left_s := assembly.heard_s + self._options.deadline - self._world.now()) > _TICK_S:
            await self._world.sleep(left_s)
            if assembly.closed:
                return
        await self._give_up(assembly)

    async def _give_up(self, assembly: Assembly) -> None:
        """Close the push, or ask the sender for the missing blocks."""
        push = assembly.push
        assert push is not None
        if self._options.late != dgt.RETRANSMIT:
            return self._close(assembly)
        assembly.resent = len(assembly.missing)
        blocks = torch.tensor(sorted(assembly.missing), dtype=torch.int64)
        meta = {"of": len(push.parts[1])} | epoch_of(push)
        return await self._world.send(
            push.sender, Message(MessageKind.MISSING, push.key, push.round, meta, (blocks,), push.priority)
        )

    def _close(self, assembly: Assembly) -> None:
        """End the wait for more blocks. Where several pushes of a key are in flight, hand them over in their order."""
        push = assembly.push
        assert push is not None
        assembly.closed = True
        state = self._keys[push.sender, push.key]
        for round_ in sorted(number for number, each in state.open.items() if each.push is not None):
            if not state.open[round_].closed:
                return
            self._deliver(state, state.open.pop(round_))

    def _deliver(self, state: _ReceivedKey, assembly: Assembly) -> None:
        """Hand the push to the server with zeros for missing blocks; these may still come late."""
        push = assembly.push
        assert push is not None
        self._settle(push.sender, push.key, state)
        values = assembly.values(state.late)
        state.last = assembly
        state.late = {}
        state.closed_round = push.round
        self._record_traffic(push.sender, push.key, push.round, state)
        self._hand_over(
            Message(
                MessageKind.PUSH,
                push.key,
                push.round,
                push.meta,
                (values,),
                push.priority,
                sender=push.sender,
                sent_at_s=push.sent_at_s,
            )
        )

    # ---- records ------------------------------------------------------------------------------------------------

    def _settle(self, sender: str, key: int, state: _ReceivedKey) -> None:
        """Write the account of the closed round: blocks that have not arrived by now are lost."""
        last = state.last
        if last is None or last.push is None:
            return
        for round_ in [round_ for round_ in state.traffic if round_ <= last.push.round]:
            self._record_traffic(sender, key, round_, state)
        lost = len(last.missing)
        self._world.record(
            "blocks",
            source=sender,
            key=key,
            round=last.push.round,
            sent=last.sent,
            delivered=last.sent - last.late - lost,
            late=last.late,
            lost=lost,
            resent=last.resent,
        )

    def settle(self) -> None:
        """Write the accounts of the last rounds, at the end of the run."""
        for (sender, key), state in self._keys.items():
            self._settle(sender, key, state)

    def _record_traffic(self, sender: str, key: int, round_: int, state: _ReceivedKey) -> None:
        """Record one ``transfer`` event for all blocks since the last event: one per block would swamp the log."""
        traffic = state.traffic.pop(round_, None)
        if traffic is not None:
            tier = "lan" if data_center_of(sender) == data_center_of(self._world.node) else "wan"
            self._world.record(
                "transfer",
                t0=round(traffic.first_s, 6),
                source=sender,
                target=self._world.node,
                message="block",
                key=key,
                round=round_,
                payload_bytes=traffic.payload_bytes,
                header_bytes=traffic.header_bytes,
                tier=tier,
            )


class _CodecOfBlocks(CodecOver):
    """A server's codec for one child whose pushes come as decoded blocks. Values go through the inner codec."""

    def cost(self, operation: str, size: int) -> Cost | None:
        return BLOCKS_DECODED if operation == DECODE else super().cost(operation, size)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        (contribution,) = parts
        if contribution.numel() != size:
            raise ValueError(f"{contribution.numel()} elements of key {wire_key}, where {size} were declared")
        return contribution


def block_receiver(plan: Plan, node: NodePlan, world: World, inbox: Mail) -> BlockReceiver | None:
    """Return the receiver between a global server and its inbox, if its children send blocks."""
    options = dgt_options(plan)
    if options is None or node.role != "global_server":
        return None
    return BlockReceiver(world, inbox, options)
