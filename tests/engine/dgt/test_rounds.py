"""What becomes of a push, whatever the network does to its blocks: rows 47, 48 and 52 of the acceptance list."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from testbed.codec.errors import NonFiniteNumbers
from testbed.messages import Message, MessageKind
from testbed.policy.order.dgt import Dgt
from tests.contract.tiny import REMOTE
from tests.engine.dgt.harness import Ends, play
from tests.for_each import for_each

B = 4  # elements of a block
FIXED: dict[str, Any] = {"block": 4 * B, "adaptive": False, "k": 0.5, "deadline": 0.1}


def tensor(blocks: int, value: float = 1.0) -> torch.Tensor:
    """Blocks whose magnitude grows with their number; the last one is short."""
    return value * torch.arange(1, blocks + 1).repeat_interleave(B)[:-1].float()


def test_all_blocks_in_any_order_make_the_push_bit_for_bit(tmp_path: Path) -> None:
    async def script(ends: Ends) -> Any:
        sent = torch.randn(50 * B - 3)
        messages = await ends.push(sent, last=True)
        random.Random(1).shuffle(messages)
        for message in messages:
            assert not ends.pushes
            ends.server.bring(message)
        (got,) = ends.pushes
        assert torch.equal(got.parts[0], sent)
        assert got.meta == {"last": True}
        return sorted(message.channel for message in messages)

    assert play(tmp_path, Dgt.Options(**FIXED), script) == [0, *[1] * 8, *[2] * 8, *[3] * 8]


def test_the_unimportant_blocks_are_the_small_ones(tmp_path: Path) -> None:
    async def script(ends: Ends) -> list[int]:
        return [message.meta["block"] for message in (await ends.push(tensor(12)))[1:]]

    assert play(tmp_path, Dgt.Options(**FIXED), script) == [4, 3, 2, 1, 0]


def test_silence_closes_a_round_and_missing_blocks_are_zero(tmp_path: Path) -> None:
    async def script(ends: Ends) -> Any:
        first, *blocks = await ends.push(tensor(12))
        ends.server.bring(first)
        ends.end()
        for block in blocks[:-1]:
            await ends.world.sleep(0.09)
            ends.server.bring(block)
            assert not ends.pushes, "not silent for long enough"
        await ends.world.sleep(0.11)
        expected = tensor(12)
        expected[:B] = 0
        assert torch.equal(ends.pushes[0].parts[0], expected)
        ends.receiver.settle()
        return ends.accounts()

    assert play(tmp_path, Dgt.Options(**FIXED), script) == {(0, 0): (5, 4, 0, 1)}


def test_while_blocks_are_to_leave_silence_closes_nothing(tmp_path: Path) -> None:
    """A reliable part of another key may take longer than the deadline, and nothing is heard meanwhile."""

    async def script(ends: Ends) -> None:
        first, *blocks = await ends.push(tensor(12))
        ends.server.bring(first)
        ends.server.bring(blocks[0])
        await ends.world.sleep(1.0)
        assert not ends.pushes
        ends.server.bring(*blocks[1:])
        assert torch.equal(ends.pushes[0].parts[0], tensor(12))

    play(tmp_path, Dgt.Options(**FIXED), script)


def test_keys_that_are_pushed_at_the_same_time_leave_one_after_another(tmp_path: Path) -> None:
    async def script(ends: Ends) -> None:
        pushes = [ends.world.spawn(ends.sender.send(REMOTE, push_of(key)), "push") for key in range(3)]
        for push in pushes:
            await ends.world.wait(push, "push")
        kinds = [MessageKind.PUSH, *[MessageKind.BLOCK] * 5, MessageKind.BLOCKS_SENT]
        assert [(message.key, message.kind) for message in ends.sent] == [(k, kind) for k in range(3) for kind in kinds]

    play(tmp_path, Dgt.Options(**FIXED), script)


def push_of(key: int) -> Message:
    return Message(MessageKind.PUSH, key, 0, parts=(tensor(12),))


@for_each(("late", "added"), [("next-round", 1.0), ("zero", 0.0), ("heuristic-drop", 0.0)])
def test_late_blocks_are_added_to_the_next_round_or_dropped(tmp_path: Path, late: str, added: float) -> None:
    async def script(ends: Ends) -> Any:
        first, *blocks = await ends.push(tensor(12))
        ends.server.bring(first)
        ends.end()
        await ends.world.sleep(0.2)
        assert len(ends.pushes) == 1
        for block in [*blocks, *blocks]:  # and a repeated one counts once
            ends.server.bring(block)
        ends.server.bring(*await ends.push(tensor(12, 10.0), round_=1))
        ends.end()
        await ends.world.sleep(0.2)
        own = 10.0 if late != "heuristic-drop" else 0.0  # which waits for no block
        expected = tensor(12, 10.0)
        expected[: 5 * B] = (own + added) * tensor(12)[: 5 * B]
        assert torch.equal(ends.pushes[1].parts[0], expected)
        assert [push.round for push in ends.pushes] == [0, 1]
        ends.receiver.settle()
        return ends.accounts()[0, 0]

    assert play(tmp_path, Dgt.Options(**FIXED, late=late), script) == (5, 0, 5, 0)


def test_blocks_of_the_coming_round_may_come_before_its_reliable_part_and_before_this_round_ends(
    tmp_path: Path,
) -> None:
    async def script(ends: Ends) -> None:
        now, following = [await ends.push(tensor(12, 10.0**n), round_=n) for n in range(2)]
        ends.server.bring(*following[1:], *now, following[0])
        assert torch.equal(ends.pushes[0].parts[0], tensor(12))
        assert torch.equal(ends.pushes[1].parts[0], tensor(12, 10.0))

    play(tmp_path, Dgt.Options(**FIXED), script)


def test_keys_and_senders_are_kept_apart(tmp_path: Path) -> None:
    async def script(ends: Ends) -> None:
        one, two = await ends.push(tensor(12), key=1), await ends.push(tensor(9, 10.0), key=2)
        ends.server.bring(*two[1:], *one)
        ends.server.bring(two[0], sender="east/server0")
        ends.end("east/server0")
        await ends.world.sleep(0.2)
        by_sender = {(push.sender, push.key): push.parts[0] for push in ends.pushes}
        assert torch.equal(by_sender["west/worker0", 1], tensor(12))
        assert not by_sender["east/server0", 2][: 3 * B].any()

    play(tmp_path, Dgt.Options(**FIXED), script)


def test_a_block_with_another_total_is_not_taken(tmp_path: Path) -> None:
    async def script(ends: Ends) -> None:
        first, *blocks = await ends.push(tensor(12))
        ends.server.bring(first)
        ends.server.bring(Message(MessageKind.BLOCK, 0, 0, {"block": 0, "of": 11}, (torch.full((B,), 9.0),), channel=1))
        ends.server.bring(Message(MessageKind.BLOCK, 0, 0, {"block": 9, "of": 12}, (torch.full((B,), 9.0),), channel=1))
        ends.server.bring(*blocks)
        assert torch.equal(ends.pushes[0].parts[0], tensor(12))

    play(tmp_path, Dgt.Options(**FIXED), script)


def test_retransmission_loses_nothing(tmp_path: Path) -> None:
    async def script(ends: Ends) -> Any:
        first, *blocks = await ends.push(tensor(12))
        ends.server.bring(first)
        ends.server.bring(blocks[2])
        ends.end()
        await ends.world.sleep(0.2)
        assert not ends.pushes
        (asked,) = ends.asked
        before = len(ends.sent)
        ends.child.bring(asked, sender="east/global0")
        await ends.world.sleep(0.01)
        again = ends.sent[before:]
        assert [message.channel for message in again] == [0] * 4
        ends.server.bring(blocks[0])  # the original comes after all
        ends.server.bring(*again)
        assert torch.equal(ends.pushes[0].parts[0], tensor(12))
        ends.receiver.settle()
        return [event["resent"] for event in ends.events if event["kind"] == "blocks"]

    assert play(tmp_path, Dgt.Options(**FIXED, late="retransmit"), script) == [4]


@for_each("late", ["zero", "next-round", "retransmit"])
def test_without_a_deadline_a_push_waits_for_its_blocks_to_leave(late: str, tmp_path: Path) -> None:
    async def script(ends: Ends) -> None:
        first, *blocks = await ends.push(tensor(12))
        ends.server.bring(first, *blocks[:-1])
        assert not ends.pushes
        ends.end()
        await ends.world.sleep(0.1)
        assert len(ends.asked) == (late == "retransmit") == (not ends.pushes)
        ends.server.bring(blocks[-1])
        received = ends.pushes[0].parts[0]
        assert int((received != tensor(12)).sum()) == (0 if late == "retransmit" else B)

    play(tmp_path, Dgt.Options(**FIXED | {"deadline": 0.0}, late=late), script)


def test_sender_drop_sends_only_the_important(tmp_path: Path) -> None:
    async def script(ends: Ends) -> None:
        (only,) = await ends.push(tensor(12))
        ends.server.bring(only)
        expected = tensor(12)
        expected[: 5 * B] = 0
        assert torch.equal(ends.pushes[0].parts[0], expected)

    play(tmp_path, Dgt.Options(**FIXED, late="sender-drop"), script)


def test_blocks_of_zeros_are_not_sent(tmp_path: Path) -> None:
    async def script(ends: Ends) -> None:
        sent = tensor(12)
        sent[2 * B : 6 * B] = 0
        messages = await ends.push(sent)
        assert len(messages) == 1 + 3  # of eight blocks, half and the last go reliably
        ends.server.bring(*messages)
        assert torch.equal(ends.pushes[0].parts[0], sent)

    play(tmp_path, Dgt.Options(**FIXED), script)


def test_the_loss_in_the_notes_moves_k(tmp_path: Path) -> None:
    async def script(ends: Ends) -> list[int]:
        return [len(await ends.push(tensor(101), round_=n, loss=loss)) - 1 for n, loss in enumerate((2.0, 1.0, 0.1))]

    options = Dgt.Options(**{**FIXED, "adaptive": True, "k": 0.8, "k_min": 0.2})
    assert play(tmp_path, options, script) == [100 - 81, 100 - 40, 100 - 20]


def test_what_the_code_loses_is_carried_to_the_next_round(tmp_path: Path) -> None:
    """Row 51: after n rounds of one gradient, the sum of what arrived is off by one rounding, not by n."""

    async def script(ends: Ends) -> None:
        torch.manual_seed(1)
        sent, total = torch.randn(40 * B), torch.zeros(40 * B)
        for round_ in range(12):
            ends.server.bring(*await ends.push(sent, round_))
            total += ends.pushes[-1].parts[0]
        step = (sent.max() - sent.min()) / 16
        assert (total - 12 * sent).abs().max() <= step
        assert (ends.pushes[0].parts[0] - sent).abs().max() > 0

    play(tmp_path, Dgt.Options(**FIXED, code="4-bit"), script)


def test_half_precision_payloads_are_blocks_of_the_same_bytes(tmp_path: Path) -> None:
    async def script(ends: Ends) -> None:
        sent = torch.randn(61).half()
        messages = await ends.push(sent)
        assert {message.parts[0].nbytes for message in messages[1:]} == {4 * B}
        ends.server.bring(*messages)
        assert ends.pushes[0].parts[0].dtype == torch.float32
        assert torch.equal(ends.pushes[0].parts[0], sent.float())

    play(tmp_path, Dgt.Options(**FIXED), script)


def test_numbers_that_are_not_finite_never_enter_the_memory(tmp_path: Path) -> None:
    async def script(ends: Ends) -> None:
        with pytest.raises(NonFiniteNumbers):
            await ends.push(torch.full((40,), float("nan")))
        ends.server.bring(*await ends.push(tensor(12)))
        assert torch.equal(ends.pushes[0].parts[0], tensor(12))

    play(tmp_path, Dgt.Options(**FIXED), script)


fates = st.sampled_from(["in time", "late", "very late", "lost", "twice"])


@given(st.lists(st.lists(fates, min_size=5, max_size=5), min_size=1, max_size=5), st.integers(0, 1 << 30))
def test_whatever_happens_to_blocks_each_counts_once_and_in_its_place(
    tmp_path_factory: pytest.TempPathFactory, plan: list[list[str]], seed: int
) -> None:
    """I4: sent = delivered + late + lost, in every round; and the values are those that the fates imply."""

    async def script(ends: Ends) -> None:
        rng = random.Random(seed)
        after: list[list[Message]] = [[] for _ in range(len(plan) + 3)]
        for round_, fate in enumerate(plan):
            first, *blocks = await ends.push(tensor(12, 10.0**round_), round_)
            now = [first]
            for block, what in zip(blocks, fate, strict=True):
                now += [block] * {"in time": 1, "twice": 2}.get(what, 0)
                after[round_ + {"late": 0, "very late": 1}.get(what, len(plan) - round_ + 2)].append(block)
            rng.shuffle(now)
            ends.server.bring(*now)
            ends.end()
            await ends.world.sleep(0.2)
            ends.server.bring(*after[round_])
        ends.receiver.settle()
        for round_, fate in enumerate(plan):
            late = fate.count("late")
            lost = fate.count("very late") + fate.count("lost")
            assert ends.accounts()[0, round_] == (5, 5 - late - lost, late, lost)
            expected = tensor(12, 10.0**round_)
            for at, what in zip((4, 3, 2, 1, 0), fate, strict=True):
                here = what in ("in time", "twice")
                came = round_ > 0 and plan[round_ - 1][4 - at] == "late"
                own = tensor(12)[at * B : (at + 1) * B]
                expected[at * B : (at + 1) * B] = own * (here * 10.0**round_ + came * 10.0 ** (round_ - 1))
            assert torch.equal(ends.pushes[round_].parts[0], expected)

    play(tmp_path_factory.mktemp("play"), Dgt.Options(**FIXED), script)


def test_what_the_code_loses_waits_while_there_is_nothing_to_send(tmp_path: Path) -> None:
    """A block without a past (alpha 0) and without a gradient is not sent; what it still owes is not forgotten."""

    async def script(ends: Ends) -> None:
        torch.manual_seed(1)
        sent, total = torch.randn(12 * B), torch.zeros(12 * B)
        sent[-B:] = 10.0
        nothing = torch.zeros(12 * B)
        nothing[-B:] = 10.0
        rounds = [sent, nothing, sent, nothing] * 5
        for round_, gradient in enumerate(rounds):
            ends.server.bring(*await ends.push(gradient, round_))
            total += ends.pushes[-1].parts[0]
        assert (total - sum(rounds)).abs().max() <= (sent[:-B].max() - sent[:-B].min()) / 16

    play(tmp_path, Dgt.Options(**FIXED, code="4-bit", alpha=0.0), script)


@for_each("late", ["next-round", "zero"])
def test_pushes_of_a_key_that_are_under_way_together_are_handed_over_in_their_order(tmp_path: Path, late: str) -> None:
    """Above workers that wait for nobody; the later one may be whole before the earlier one is given up."""

    async def script(ends: Ends) -> Any:
        one, two = [await ends.push(tensor(12, 10.0**n), round_=n) for n in range(2)]
        ends.server.bring(*one[:-1], *two)
        assert not ends.pushes
        ends.end()
        await ends.world.sleep(0.2)
        expected = tensor(12)
        expected[:B] = 0
        assert [push.round for push in ends.pushes] == [0, 1]
        assert torch.equal(ends.pushes[0].parts[0], expected)
        assert torch.equal(ends.pushes[1].parts[0], tensor(12, 10.0))
        ends.receiver.settle()
        return ends.accounts()

    assert play(tmp_path, Dgt.Options(**FIXED, late=late), script) == {(0, 0): (5, 4, 0, 1), (0, 1): (5, 5, 0, 0)}


def test_each_of_them_can_be_asked_for_again(tmp_path: Path) -> None:
    async def script(ends: Ends) -> None:
        ends.sender._pushes_in_flight = 2
        for rounds in ((0, 1), (3, 6)):  # under HFA, not all rounds come here
            one, two = [await ends.push(tensor(12, 10.0**n), round_=n) for n in rounds]
            ends.server.bring(*one[:-1], *two[:-2], two[-1])
            ends.end()
            await ends.world.sleep(0.2)
            before = len(ends.sent)
            ends.child.bring(*ends.asked, sender="east/global0")
            ends.asked.clear()
            await ends.world.sleep(0.01)
            ends.server.bring(*reversed(ends.sent[before:]))
            assert [push.round for push in ends.pushes[-2:]] == list(rounds)
            for push, number in zip(ends.pushes[-2:], rounds, strict=True):
                assert torch.equal(push.parts[0], tensor(12, 10.0**number))
        assert list(ends.sender._keys[0].sent) == [3, 6], "and those before are forgotten"

    play(tmp_path, Dgt.Options(**FIXED, late="retransmit"), script)


def test_a_push_may_become_whole_while_another_is_asked_for(tmp_path: Path) -> None:
    async def script(ends: Ends) -> None:
        one, two = await ends.push(tensor(12), key=1), await ends.push(tensor(12), key=2)
        ends.server.bring(*one[:-1], *two[:-1])
        asking = ends.asked.append

        def slowly(message: Message) -> None:  # the queue to the child is full; meanwhile key 2's last block comes
            asking(message)
            ends.server.bring(two[-1])

        ends.receiver._world._outbox = _Tapped(slowly)  # type: ignore[attr-defined]
        ends.end()
        await ends.world.sleep(0.3)
        assert [(message.key, message.kind) for message in ends.asked] == [(1, MessageKind.MISSING)]
        assert [push.key for push in ends.pushes] == [2]

    play(tmp_path, Dgt.Options(**FIXED, late="retransmit"), script)


class _Tapped:
    def __init__(self, append: Any) -> None:
        self.append = append
