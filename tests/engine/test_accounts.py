"""Nothing of a gradient vanishes: what is sent, what is kept back and what is declared lost is what was produced.

Whole runs are watched: every contribution that a codec encodes, and every block that DGT sends, in every round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from testbed.codec.demo import DeMo
from testbed.codec.options import CODECS
from testbed.codec.powersgd import PowerSgd
from testbed.codec.sparse import BySize, LargeKeys
from testbed.codec.sparseloco import SparseLoCo
from testbed.codec.twobit import TwoBitCodec
from testbed.engine.dgt.blocks import block_values
from testbed.engine.dgt.receiver import BlockReceiver
from testbed.engine.dgt.sender import BlockSender
from testbed.messages import Message
from testbed.policy.order.dgt import NEXT_ROUND, RELIABLE
from tests.engine.runs import run
from tests.for_each import for_each

SMALL = ("training.model={kind: mlp, hidden: 8}", "training.rounds=4", "training.evaluate_every=4")
WITH_MEMORY = CODECS.where(lambda codec: codec.has_memory)
OWNERS = (LargeKeys, TwoBitCodec, SparseLoCo, DeMo, PowerSgd)
# for a small model; where what is kept fades, it stays here
OPTIONS = {
    "twobit": "threshold: 0.01",
    "sparseloco": "chunk: 64, k: 8, decay: 1",
    "demo": "chunk: 8, k: 4, decay: 1",
    "powersgd": "rank: 1",
}


def kept(codec: Any, key: int) -> dict[str, Tensor]:
    """What a codec remembers of a key: what is ``unsent``, and with momentum correction the ``velocity``."""
    if isinstance(codec, LargeKeys):
        return codec.memories[key].state() if key in codec.memories else {}
    state = codec.state()
    for name in ("residuals", "errors", "momenta"):
        if f"{name}/{key}" in state:
            return {"unsent": state[f"{name}/{key}"]}
    return {}


class Watched:
    """Compares, for one codec, every payload and the memory after it with what has been produced."""

    def __init__(self) -> None:
        self.velocity: dict[tuple[int, int], Tensor] = {}
        self.calls = self.kept_back = 0

    def check(self, codec: Any, key: int, tensor: Tensor, before: dict[str, Tensor], sent: Tensor) -> None:
        state = kept(codec, key)
        if not state:  # a vector that travels as it is
            assert torch.equal(sent, tensor)
            return
        produced, old, new = tensor, before.get("unsent", torch.zeros_like(tensor)), state["unsent"]
        if "velocity" in state:  # what momentum correction produces is the velocity
            produced = self._moved(codec, key, tensor, sent)
        assert torch.allclose(sent + new, old + produced, rtol=0, atol=1e-6)
        self.calls += 1
        self.kept_back += int(new.any())

    def _moved(self, codec: LargeKeys, key: int, tensor: Tensor, sent: Tensor) -> Tensor:
        place = (id(codec), key)
        velocity = self.velocity.get(place, torch.zeros_like(tensor)) * codec._make_memory._momentum + tensor
        self.velocity[place] = torch.where(sent == 0, velocity, 0)
        return velocity


@for_each("kind", WITH_MEMORY)
def test_a_codec_sends_or_keeps_what_is_produced(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    for owner in OWNERS:
        encode = owner.encode

        def check(self: Any, key: int, tensor: Tensor, encode: Any = encode) -> tuple[Tensor, ...]:
            before, produced = kept(self, key), tensor.clone()
            parts: tuple[Tensor, ...] = encode(self, key, tensor)
            watched.check(self, key, produced, before, self.decode(key, parts, tensor.numel()))
            return parts

        monkeypatch.setattr(owner, "encode", check)
    run(tmp_path / "run", *SMALL, f"codec={{kind: {kind}, {OPTIONS.get(kind, 'bound: 100')}}}")
    assert watched.calls >= 12 and watched.kept_back > watched.calls / 2


def test_the_watch_is_of_all_codecs_with_memory() -> None:
    """A new codec with a memory needs an owner in the test above."""
    from testbed.codec.table import make_codec

    for kind in WITH_MEMORY:
        codec = make_codec(kind, {})
        assert isinstance(codec.large if isinstance(codec, BySize) else codec, OWNERS), kind


LOSSES = ("links[*].loss=2 %", "links[*].queue=20 KB", "device.step_time=20 ms")
Key = tuple[str, int]  # a sender and a wire key


class Blocks:
    """Sums of all rounds, of what each sender produced and sent, and of what arrived, was lost, or is left over."""

    def __init__(self) -> None:
        self.sums: dict[str, dict[Key, Tensor]] = defaultdict(dict)
        self.sent: dict[tuple[str, int, int], dict[int, Tensor]] = {}  # of a round: its best-effort blocks
        self.late: dict[tuple[str, int, int], set[int]] = defaultdict(set)
        self.lost = 0

    def add(self, what: str, key: Key, tensor: Tensor) -> None:
        flat = tensor.reshape(-1).double()
        self.sums[what][key] = self.sums[what].get(key, torch.zeros_like(flat)) + flat

    def add_blocks(self, what: str, key: Key, blocks: Mapping[int, Tensor]) -> None:
        size = self.sums["produced"][key].numel()
        for block, values in blocks.items():
            table = torch.zeros(-(-size // len(values)), len(values))
            table[block] = values
            self.add(what, key, table.view(-1)[:size])

    def of(self, what: str, key: Key) -> Tensor:
        return self.sums[what].get(key, torch.zeros_like(self.sums["produced"][key]))


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> Blocks:
    """Watch both ends of DGT."""
    found = Blocks()
    cut, deliver, settle, late = (
        BlockSender._cut,
        BlockReceiver._deliver,
        BlockReceiver._settle,
        BlockReceiver._on_late,
    )

    def on_cut(self: BlockSender, push: Message, k: float) -> list[Message]:
        key, payload = (self._world.node, push.key), push.parts[0]
        found.add("produced", key, payload)
        first, *others = messages = cut(self, push, k)
        elements = self._options.block // payload.element_size()
        sent = {each.meta["block"]: block_values(each, elements) for each in others}
        found.sent[(*key, push.round)] = sent
        important, channels = first.parts
        reliable = channels == RELIABLE
        table = torch.zeros(len(channels), elements)
        padded = torch.nn.functional.pad(important.float(), (0, int(reliable.sum()) * elements - important.numel()))
        table[reliable] = padded.view(-1, elements)
        found.add("sent", key, table.view(-1)[: payload.numel()])
        found.add_blocks("sent", key, sent)
        kept = self._keys[push.key].residual
        if kept is not None:
            found.sums["kept"][key] = kept.view(-1)[: payload.numel()].double()
        return messages

    def on_deliver(self: BlockReceiver, state: Any, assembly: Any) -> None:
        hand_over = self._hand_over

        def watched(message: Message) -> None:
            found.add("delivered", (message.sender, message.key), message.parts[0])
            hand_over(message)

        self._hand_over = watched
        deliver(self, state, assembly)
        self._hand_over = hand_over
        if state.late:
            raise AssertionError("late blocks of the round before are taken with a round")

    def on_late(self: BlockReceiver, state: Any, last: Any, message: Message) -> None:
        before = last.late
        late(self, state, last, message)
        if last.late > before:
            found.late[message.sender, message.key, message.round].add(message.meta["block"])

    def on_settle(self: BlockReceiver, sender: str, key: int, state: Any) -> None:
        if state.last is not None and state.last.push is not None:
            round_ = state.last.push.round
            gone, sent = set(state.last.missing), found.sent[sender, key, round_]
            found.lost += len(gone)
            if self._options.late != NEXT_ROUND:
                gone |= found.late[sender, key, round_]  # and dropped
            found.add_blocks("lost", (sender, key), {block: sent[block] for block in gone})
        found.sums["left over"].pop((sender, key), None)
        found.add_blocks("left over", (sender, key), state.late)
        settle(self, sender, key, state)

    monkeypatch.setattr(BlockSender, "_cut", on_cut)
    monkeypatch.setattr(BlockReceiver, "_deliver", on_deliver)
    monkeypatch.setattr(BlockReceiver, "_settle", on_settle)
    monkeypatch.setattr(BlockReceiver, "_on_late", on_late)
    return found


@pytest.mark.sample(2)  # of 8, which take 3 s
@pytest.mark.parametrize("code", ["exact", "4-bit"])
@pytest.mark.parametrize("late", ["next-round", "zero", "retransmit", "heuristic-drop"])
def test_blocks_arrive_or_are_declared_lost(late: str, code: str, tmp_path: Path, blocks: Blocks) -> None:
    order = f"order={{kind: dgt, block: 256 bytes, k: 0.4, late: {late}, code: {code}}}"
    result = run(tmp_path / "run", *SMALL, "training.rounds=6", *LOSSES, order)
    assert sum(account["lost"] for account in result.of_kind("blocks")) == blocks.lost
    assert (blocks.lost == 0) == (late == "retransmit")
    for key, produced in blocks.sums["produced"].items():
        sent = blocks.of("sent", key)
        assert torch.allclose(sent + blocks.of("kept", key), produced, rtol=0, atol=1e-5), key
        arrived = blocks.of("delivered", key) + blocks.of("lost", key) + blocks.of("left over", key)
        assert torch.allclose(arrived, sent, rtol=0, atol=1e-5), key
