"""The child's side of DGT: cuts every push into blocks, sends important blocks reliably, the others by best effort.

Zhou et al., FGCS 121, 2021 (see ``testbed.policy.order.dgt``). The contribution of block i to the model is a moving
average of the mean magnitude of its n_i elements g:

    C_i(t) = alpha * C_i(t-1) + (1 - alpha) * (1/n_i) * sum |g|

The largest share k of the blocks travels on the reliable channel together with the channel of every block, so that
the receiver knows what to expect; the others follow as datagrams, the most important first. When these have left,
BLOCKS_SENT says so, and the next key begins: keys keep their order, so that a server answers the first ones while the
last ones are on their way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from testbed.codec.errors import check_finite
from testbed.engine.dgt.blocks import (
    BLOCKS_ENCODED,
    block_message,
    block_parts,
    block_values,
    elements_of,
    epoch_of,
    important_part,
    rows,
)
from testbed.engine.inbox import Mail
from testbed.engine.kvworker import PushRoute
from testbed.engine.slicing import dgt_options
from testbed.ids import data_center_of
from testbed.messages import Message, MessageKind
from testbed.plan.model import NodePlan, Plan
from testbed.policy.order import dgt
from testbed.policy.order.dgt import RELIABLE, SKIPPED, Dgt, Threshold
from testbed.policy.sync import SYNC
from testbed.results.events import BLOCKS_AHEAD
from testbed.state import PartsByKey, Remembering
from testbed.training.seeds import torch_stream
from testbed.world import Future, Work, World

Blocks = dict[int, tuple[Tensor, ...]]


@dataclass(slots=True)
class _SentKey(Remembering):
    """What is remembered of a key.

    contributions  C of each block
    residual       what the 4-bit code lost, added to the next push (error feedback); [blocks, elements]
    round, before  the latest push, and C and the residual before it, for a push that is made once more
    sent           best-effort blocks that may be asked for again, by round
    """

    remembers: ClassVar[tuple[str, ...]] = ("contributions", "residual")

    contributions: Tensor
    residual: Tensor | None = None
    round: int = -1
    before: tuple[Tensor, Tensor | None] | None = None
    sent: dict[int, Blocks] = field(default_factory=dict)


class BlockSender(Remembering):
    """Stands between a ``KVWorker`` and the world: ``send`` replaces ``World.send``.

    If k follows the training loss, pushes carry the loss in their notes. A checkpoint is made between two rounds, so it
    does not contain blocks that a server may ask for again.
    """

    remembers = ("draws", "_threshold", "_keys")

    def __init__(
        self, world: World, inbox: Mail, options: Dgt.Options, chance: torch.Generator, pushes_in_flight: int = 1
    ) -> None:
        """``pushes_in_flight``: how many pushes of one key may wait for their replies at the same time."""
        self._world = world
        self._options = options
        self._chance = chance
        self._pushes_in_flight = pushes_in_flight
        self._threshold = Threshold(options)
        self._judged_round = -1
        self._keys: PartsByKey[int, _SentKey] = PartsByKey()
        self._turns: dict[str, Future[None]] = {}  # by data centre: set when the latest push has left
        if options.late == dgt.RETRANSMIT:
            inbox.on(MessageKind.MISSING, self._on_missing)

    @property
    def draws(self) -> Tensor:
        """The state of its random generator."""
        return self._chance.get_state()

    @draws.setter
    def draws(self, place: Tensor) -> None:
        self._chance.set_state(place)

    async def send(self, to: str, message: Message) -> None:
        """Send a push in blocks, any other message as it is."""
        if message.kind is not MessageKind.PUSH:
            return await self._world.send(to, message)
        # servers of a data centre share a path, on which reliable parts for one would delay the blocks for another
        site = data_center_of(to)
        mine = self._world.future()
        before = self._turns.get(site)
        self._turns[site] = mine
        if before is not None:
            await self._world.wait(before, f"{BLOCKS_AHEAD} {site} to leave")
        try:
            await self._send_push(to, message)
        finally:
            mine.set_result(None)
        return None

    async def _send_push(self, to: str, message: Message) -> None:
        if "loss" in message.meta and message.round != self._judged_round:
            self._judged_round = message.round
            k = self._threshold.update(message.meta["loss"])
            self._world.record("threshold", round=message.round, k=k, loss=message.meta["loss"])
        k = self._threshold.k if data_center_of(to) != data_center_of(self._world.node) else 1.0
        (payload,) = message.parts
        work = Work("encode", message.round, payload.nbytes, cost=BLOCKS_ENCODED, elements=payload.numel())
        first, *blocks = await self._world.compute(work, lambda: self._cut(message, k))
        await self._world.send(to, first)
        for block in blocks:
            await self._world.send(to, block)
        if blocks:
            await self._world.drain(to)
            sent = Message(MessageKind.BLOCKS_SENT, message.key, message.round, epoch_of(message))
            sent.priority = message.priority
            await self._world.send(to, sent)

    def _cut(self, push: Message, k: float) -> list[Message]:
        """Return the reliable part, a share ``k`` of the blocks, then the others, most important first."""
        (payload,) = push.parts
        payload = payload.reshape(-1)
        elements, state = self._update_contributions(push.key, push.round, payload)
        scores = self._scores(state)
        channels = dgt.channels_of(scores, k, self._options.channels)
        if self._options.late == dgt.SENDER_DROP:
            channels = [RELIABLE if channel == RELIABLE else SKIPPED for channel in channels]
        table = rows(payload, elements)
        if state.residual is not None:
            table = table + state.residual
            payload = table.view(-1)[: payload.numel()].to(payload.dtype)
        best_effort = [block for block in dgt.sending_order(scores) if channels[block] not in (RELIABLE, SKIPPED)]
        parts = {block: block_parts(table[block], self._options) for block in best_effort}
        first = Message(
            MessageKind.PUSH,
            push.key,
            push.round,
            push.meta,
            (important_part(payload, elements, channels), torch.tensor(channels, dtype=torch.uint8)),
            push.priority,
        )
        blocks = [block_message(push, block, len(channels), parts[block], channels[block]) for block in best_effort]
        self._keep(state, push, table, channels, dict(zip(best_effort, blocks, strict=True)))
        return [first, *blocks]

    def _update_contributions(self, key: int, round_: int, payload: Tensor) -> tuple[int, _SentKey]:
        """Return the number of elements of a block, and the key's state, with C(t) updated by this payload."""
        check_finite(key, payload)
        elements = elements_of(self._options, payload)
        count = dgt.block_count(payload.numel(), elements)
        if key not in self._keys:
            self._keys[key] = _SentKey(torch.zeros(count))
        state = self._keys[key]
        if state.before is not None and state.round == round_:
            state.contributions, state.residual = state.before  # a repeated push: the membership has changed
        state.round = round_
        state.before = (state.contributions, state.residual)
        if payload.is_meta:
            state.contributions = torch.ones(count)
            return elements, state
        filled = rows(payload.float().abs(), elements)
        sizes = torch.full((count,), float(elements))
        sizes[-1] = payload.numel() - (count - 1) * elements
        state.contributions = dgt.contribution(state.contributions, filled.sum(1) / sizes, self._options.alpha)
        return elements, state

    def _scores(self, state: _SentKey) -> list[float]:
        """Return the score of each block, which decides the order; 0 for blocks that have only ever been zero."""
        if self._options.selection == dgt.CONTRIBUTION:
            scores = state.contributions
        elif self._options.selection == dgt.RANDOM:
            scores = 1.0 - torch.rand(len(state.contributions), generator=self._chance)
        else:
            scores = torch.ones(len(state.contributions))
        return torch.where(state.contributions > 0, scores, 0.0).tolist()

    def _keep(
        self, state: _SentKey, push: Message, table: Tensor, channels: list[int], blocks: dict[int, Message]
    ) -> None:
        """Keep the residuals of 4-bit blocks, and the blocks that the server may ask for again."""
        if self._options.code == dgt.FOUR_BITS and not table.is_meta:
            state.residual = torch.zeros(table.shape)
            if self._options.late != dgt.SENDER_DROP:  # that baseline loses what it does not send, on purpose
                skipped = [block for block, channel in enumerate(channels) if channel == SKIPPED]
                state.residual[skipped] = table[skipped].float()
            for block, message in blocks.items():
                state.residual[block] = table[block].float() - block_values(message, table.shape[1])
        if self._options.late == dgt.RETRANSMIT:
            state.sent[push.round] = {block: message.parts for block, message in blocks.items()}
            while len(state.sent) > self._pushes_in_flight:
                del state.sent[min(state.sent)]

    def _on_missing(self, message: Message) -> None:
        kept = self._keys.get(message.key)
        sent = kept.sent.get(message.round) if kept else None
        if sent is None:
            return  # the server asks for blocks of the process that this one has replaced
        self._world.spawn(self._send_again(message, sent), f"send blocks of key {message.key} again")

    async def _send_again(self, asked: Message, sent: Blocks) -> None:
        for block in asked.parts[0].tolist():
            await self._world.send(asked.sender, block_message(asked, block, asked.meta["of"], sent[block], RELIABLE))


def block_route(plan: Plan, node: NodePlan, world: World, inbox: Mail) -> PushRoute:
    """Return how ``node`` sends to its parents: in blocks to a global server, or as the world does."""
    options = dgt_options(plan)
    if options is None or plan.node(node.parents[0]).role != "global_server":
        return PushRoute(world.send)
    # if workers do not wait for each other, each of them may have a push of the key in flight
    pushes_in_flight = 1 if SYNC[plan.technique.sync_tier1.kind].waits else max(1, len(node.children))
    sender = BlockSender(world, inbox, options, torch_stream(plan.seed, "dgt", node.name), pushes_in_flight)
    return PushRoute(sender.send, memories={"blocks": sender})
