"""Models that travel through a codec: both ends keep the sender's model as the receiver knows it (CHOCO-SGD).

Koloskova, Stich and Jaggi, Decentralized stochastic optimization and gossip algorithms with compressed communication,
ICML 2019. The receiver knows a model x as x̂, which has the same bits at both ends. A message carries Q(x − x̂), and both
ends add its decoded content to x̂. Workers mix the known models, not the models themselves:
x_i ← x_i + γ (Σ w_ij x̂_j − Σ w_ji x̂_i). So compression only delays information, and mixing preserves the sum of all
models.

A codec with error feedback keeps x − x̂ as its residual, so it encodes the change of x since its last message. A codec
without memory encodes x − x̂.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.options import CODECS
from testbed.engine import coding
from testbed.messages import Message, MessageKind
from testbed.policy.gossip.mixing import Part
from testbed.state import PartsByKey, Remembering
from testbed.world import Work, World

KEY = 0


class KnownModel(Remembering):
    """A sender's model as its receiver knows it. ``known``: x̂, the same bits at both ends; new after every message."""

    remembers: ClassVar[tuple[str, ...]] = ("known", "_decoder")

    def __init__(self, world: World, decoder: Codec, first: Tensor) -> None:
        self._world = world
        self._decoder = decoder
        self.known = first

    async def take(self, parts: Sequence[Tensor], round_: int) -> Tensor:
        """Update the known model by a message, and return it."""
        message = Message(MessageKind.GOSSIP, KEY, round_, parts=tuple(parts))
        self.known = self.known + await coding.decode(self._world, self._decoder, message, self.known.numel())
        return self.known


class SentModel(KnownModel):
    """A worker's own model as its receivers know it. The worker decodes its own messages, by a codec of their own.

    ``has_memory``: the codec keeps x − x̂ itself.
    """

    remembers = ("known", "_decoder", "_last", "_codec")

    def __init__(self, world: World, codec: Codec, decoder: Codec, first: Tensor, *, has_memory: bool) -> None:
        super().__init__(world, decoder, first)
        self._codec = codec
        self._has_memory = has_memory
        self._last = first

    async def encode(self, model: Tensor, round_: int) -> coding.Parts:
        """Return a payload that moves the known model towards ``model``."""
        behind = model - (self._last if self._has_memory else self.known)
        parts = await coding.encode(self._world, self._codec, KEY, behind, round_)
        self._last = model
        await self.take(parts, round_)
        return parts


def mixed(own: Tensor, told: Sequence[tuple[float, Tensor]], heard: Sequence[tuple[float, Tensor]]) -> Tensor:
    """Return ``own`` minus the weighted known models sent (``told``), plus those received (``heard``)."""
    total = own.clone()
    for weight, known in told:
        total = torch.add(total, known, alpha=-weight)
    for weight, known in heard:
        total = torch.add(total, known, alpha=weight)
    return total


class Compression(Remembering):
    """All models that one worker sends and receives, by the other's rank.

    names     names of the workers, by rank
    codec     kind of the codec, and a function that makes a codec for the messages of a named worker
    first     the known model of every worker before the first message
    step      γ
    together  whether every message goes to all neighbours, so that one ``SentModel`` is enough
    pushes    whether the sender decides the weight of its model; otherwise both ends use one weight
    """

    remembers = ("_sent", "_received")

    def __init__(
        self,
        world: World,
        names: Sequence[str],
        codec: tuple[str, Callable[[str], Codec]],
        first: Tensor,
        step: float,
        *,
        together: bool,
        pushes: bool,
    ) -> None:
        self._world = world
        self._names = names
        self._first = first
        self._step = step
        self._together = together
        self._pushes = pushes
        kind, self._make = codec
        self._has_memory = CODECS[kind].has_memory
        self._sent = PartsByKey(self._sent_model)
        self._received = PartsByKey(self._received_model)
        self._latest: tuple[int, coding.Parts] = (-1, ())  # round and payload of what goes to all

    async def sent(self, to: int, model: Tensor, round_: int) -> coding.Parts:
        """Return the payload of this round's model for ``to``."""
        if self._together and self._latest[0] == round_:
            return self._latest[1]
        parts = await self._sent_to(to).encode(model, round_)
        self._latest = (round_, parts)
        return parts

    async def mixed(self, own: Tensor, weight: float, part: Part, messages: Sequence[Message]) -> tuple[Tensor, float]:
        """Return model and push-sum weight after a round of mixing, slowed down by γ."""
        step = self._step
        heard = []
        told = [(step * given, self._sent_to(to).known) for to, given in self._given(part)]
        weight_after = weight * (1.0 - step * (1.0 - part.keep))
        for (source, share), message in zip(part.receives, messages, strict=True):
            heard.append((step * share, await self._received[source].take(message.parts, message.round)))
            weight_after += step * share * message.meta["weight"]
        work = Work("sum", messages[0].round if messages else 0, own.nbytes * (1 + len(told) + len(heard)))
        return await self._world.compute(work, lambda: mixed(own, told, heard)), weight_after

    def _given(self, part: Part) -> Sequence[tuple[int, float]]:
        """Return the ranks that receive this worker's model, with the weights that they use: this preserves the sum."""
        if not self._pushes:
            return part.receives
        share = (1.0 - part.keep) / max(1, len(part.sends))
        return [(to, share) for to in part.sends]

    def _sent_to(self, to: int) -> SentModel:
        return self._sent[0 if self._together else to]

    def _sent_model(self, _: int) -> SentModel:
        codec, decoder = (self._make(self._world.node) for _ in range(2))
        return SentModel(self._world, codec, decoder, self._first, has_memory=self._has_memory)

    def _received_model(self, source: int) -> KnownModel:
        return KnownModel(self._world, self._make(self._names[source]), self._first)
