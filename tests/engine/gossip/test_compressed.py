"""Models through codecs: both ends know the same, nothing is withheld for ever, and the mean of all models stays."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.table import make_codec
from testbed.engine.collectives.sums import GatheredSum
from testbed.engine.gossip.compressed import Compression, KnownModel, SentModel, mixed
from testbed.messages import Message, MessageKind
from testbed.policy.gossip.mixing import LanAndWan, Metropolis, Part
from tests.for_each import for_each

CODECS: dict[str, dict[str, Any]] = {
    "fp16": {},
    "twobit": {"threshold": 0.02},
    "topk": {"ratio": 0.05, "bound": 100},
    "bisparse": {"ratio": 0.05, "bound": 100, "momentum": 0},
    "randomk": {"ratio": 0.05, "bound": 100},
}


class Alone:
    """A world in which work takes no time."""

    def __init__(self, node: str = "a") -> None:
        self.node = node

    async def compute(self, work: Any, function: Any) -> Any:
        return function()


class Changes(Codec):
    """Sends by how much a tensor differs from the one before, with other signs.

    Both ends remember the tensor, and know the signs by key and sender.
    """

    def __init__(self, sender: str) -> None:
        self._sender = sender
        self._before: dict[int, Tensor] = {}

    def _signs(self, wire_key: int, size: int) -> Tensor:
        seed = sum(map(ord, self._sender)) * 1000 + wire_key
        return torch.randint(2, (size,), generator=torch.Generator().manual_seed(seed)) * 2.0 - 1.0

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        change = tensor - self._before.get(wire_key, 0.0)
        self._before[wire_key] = tensor
        return (change * self._signs(wire_key, tensor.numel()),)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        self._before[wire_key] = parts[0] * self._signs(wire_key, size) + self._before.get(wire_key, 0.0)
        return self._before[wire_key]

    def state(self) -> dict[str, Any]:
        return {str(key): tensor for key, tensor in self._before.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._before = {int(key): tensor for key, tensor in state.items()}


def test_what_decoding_remembers_is_of_each_worker_by_itself() -> None:
    """A gathered sum, where each worker encodes for itself and decodes what all have sent."""
    parcels: dict[int, tuple[Tensor, ...]] = {}

    async def gather(rank: int, parts: tuple[Tensor, ...]) -> tuple[list[tuple[Tensor, ...]], bool]:
        parcels[rank] = parts
        await asyncio.sleep(0)  # until the other has sent, too
        return [parcels[each] for each in sorted(parcels)], False

    def of(rank: int) -> GatheredSum:
        workers = SimpleNamespace(rank=rank, ranks=("a", "b"), all_gather_parts=lambda parts, flag: gather(rank, parts))
        return GatheredSum(cast(Any, Alone()), cast(Any, workers), Changes, 0)

    async def rounds() -> None:
        sums = [of(rank) for rank in range(2)]
        for round_ in range(5):
            if round_ == 3:  # all go on from a checkpoint
                before, sums = sums, [of(rank) for rank in range(2)]
                for old, new in zip(before, sums, strict=True):
                    new.load_state(old.state())
            mine = [torch.full((16,), float(10**rank + round_)) for rank in range(2)]
            totals = await asyncio.gather(*(each(mine[rank], round_, False) for rank, each in enumerate(sums)))
            assert all(torch.equal(total, mine[0] + mine[1]) for total, _ in totals)

    asyncio.run(rounds())


def test_a_receiver_goes_on_where_a_checkpoint_was_made() -> None:
    world: Any = Alone()
    sent = SentModel(world, Changes("a"), Changes("a"), torch.zeros(16), has_memory=True)
    old, new = (KnownModel(world, Changes("a"), torch.zeros(16)) for _ in range(2))
    for round_ in range(4):
        model = torch.full((16,), float(round_**2))
        parts = asyncio.run(sent.encode(model, round_))
        assert torch.equal(sent.known, model)
        if round_ == 2:
            new.load_state(old.state())
        known = [asyncio.run(each.take(parts, round_)) for each in ((old, new) if round_ >= 2 else (old,))]
        assert all(torch.equal(each, sent.known) for each in known)


def test_a_receiver_decodes_by_the_key_and_the_name_of_the_sender() -> None:
    codec: Any = ("topk", Changes)
    ends = [
        Compression(cast(Any, Alone(node)), "ab", codec, torch.zeros(16), 1.0, together=True, pushes=False)
        for node in "ab"
    ]
    message = Message(MessageKind.GOSSIP, 0, 0, {"weight": 1.0}, asyncio.run(ends[0].sent(1, torch.ones(16), 0)))
    mean, _ = asyncio.run(ends[1].mixed(torch.zeros(16), 1.0, Part(0.5, (0,), ((0, 0.5),)), [message]))
    assert torch.equal(mean, torch.full((16,), 0.5))


@for_each("kind", CODECS)
def test_both_ends_know_the_same_and_the_model_in_the_end(kind: str) -> None:
    world: Any = Alone()
    first, draws = torch.zeros(2000), torch.Generator().manual_seed(1)
    memory = kind != "fp16"
    ours, checking, theirs = (make_codec(kind, CODECS[kind]) for _ in range(3))
    sent, received = SentModel(world, ours, checking, first, has_memory=memory), KnownModel(world, theirs, first)
    model = first
    for round_ in range(45):
        if round_ < 20:
            model = model + 0.01 * torch.randn(2000, generator=draws)
        parts = asyncio.run(sent.encode(model, round_))
        assert torch.equal(asyncio.run(received.take(parts, round_)), sent.known)
    behind = float((model - sent.known).abs().max())
    assert behind <= (0.02 if kind == "twobit" else 1e-3 if kind == "fp16" else 0.2 if kind == "randomk" else 1e-6)


def test_mixing_moves_what_is_known_and_keeps_the_sum() -> None:
    models = [torch.randn(50, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    known = [model + 0.1 for model in models]

    def after(i: int) -> Tensor:
        others = [(0.3, known[j]) for j in range(3) if j != i]
        return mixed(models[i], [(0.3, known[i]), (0.3, known[i])], others)

    assert torch.allclose(sum(after(i) for i in range(3)), sum(models), atol=1e-5)
    assert torch.equal(mixed(models[0], [], []), models[0])


def test_the_sum_stays_where_lan_and_wan_rounds_alternate() -> None:
    """Neighbours of unequal degrees, each of which knows another x̂ of a worker."""
    near, far = ((1, 2), (0, 2), (0, 1), (4,), (3,)), ((1, 3), (0, 2, 3, 4), (1,), (0, 1), (1,))
    mixing, world, first = LanAndWan(Metropolis(near), Metropolis(far), 2), Alone(), torch.zeros(500)
    codec = ("topk", lambda sender: make_codec("topk", {"ratio": 0.05, "bound": 100}))
    ends = [Compression(cast(Any, world), "abcde", codec, first, 0.4, together=False, pushes=False) for _ in near]
    models = [torch.randn(500, generator=torch.Generator().manual_seed(rank)) for rank in range(len(near))]
    total, spread = sum(models), float(torch.stack(models).std(0).mean())

    async def after(round_: int) -> list[Tensor]:
        parts = [mixing.part(round_, rank) for rank in range(len(near))]
        sent = {
            (rank, to): Message(
                MessageKind.GOSSIP, 0, round_, {"weight": 1.0}, await ends[rank].sent(to, models[rank], round_)
            )
            for rank, part in enumerate(parts)
            for to in part.sends
        }
        came = [[sent[source, rank] for source, _ in part.receives] for rank, part in enumerate(parts)]
        return [
            (await end.mixed(model, 1.0, part, messages))[0]
            for end, model, part, messages in zip(ends, models, parts, came, strict=True)
        ]

    for round_ in range(35):
        models = asyncio.run(after(round_))
    assert torch.allclose(sum(models), total, atol=1e-4)
    assert float(torch.stack(models).std(0).mean()) < spread / 2
