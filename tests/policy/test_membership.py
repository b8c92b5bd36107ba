"""Members of a synchronisation policy leave and join: decisions alone, without clock or tensors."""

from __future__ import annotations

from typing import Any

from testbed.policy.events import Aggregate, Push, Reply
from testbed.policy.sync import SYNC
from testbed.policy.sync.base import Tier
from tests.for_each import for_each

ABC = ("a", "b", "c")


def policy(kind: str, **options: Any) -> Any:
    return SYNC[kind](Tier.of(*ABC), SYNC[kind].Options(**options))


def push(of: Any, member: str, round_: int, key: int = 0) -> list[Any]:
    effects: list[Any] = of.on_push(Push(member, key, round_))
    return effects


@for_each("kind", ["fsa", "bsp", "hfa", "esync", "diloco"])
def test_a_round_that_waited_for_the_dead_alone_is_complete(kind: str) -> None:
    fsa = policy(kind)
    assert push(fsa, "a", 0) == push(fsa, "c", 0) == []
    combine, answer = fsa.on_member_lost("b")
    assert combine.members == answer.members == ("a", "c") and answer.rounds == (0, 0) and answer.by == "b"


def test_what_the_dead_had_pushed_counts_but_is_not_answered() -> None:
    fsa = policy("fsa")
    push(fsa, "b", 0)
    assert fsa.on_member_lost("b") == []
    push(fsa, "a", 0)
    combine, answer = push(fsa, "c", 0)
    assert combine.members == ABC and answer.members == ("a", "c")


def test_who_joins_takes_part_from_the_first_round_that_no_key_has_begun() -> None:
    fsa = policy("fsa")
    fsa.on_member_lost("b")
    for member in ("a", "c"):
        push(fsa, member, 0)
    push(fsa, "a", 1, key=7)
    assert fsa.on_member_joined("b") == 2
    assert push(fsa, "c", 1, key=7)[0].members == ("a", "c")
    push(fsa, "a", 1)
    assert push(fsa, "c", 1)[0].members == ("a", "c"), "also of keys that had not begun it"
    push(fsa, "a", 2)
    assert push(fsa, "c", 2) == [] and fsa.waiting_for(0, 2) == ("b",)
    assert push(fsa, "b", 2)[0].members == ABC


def test_nobody_waits_in_tap() -> None:
    tap = policy("tap")
    push(tap, "a", 4)
    assert tap.on_member_lost("b") == [] and tap.on_member_joined("b") == 5


def test_who_was_held_for_the_dead_goes_on_in_ssp() -> None:
    ssp = policy("ssp", staleness=1)
    for member in ABC:
        push(ssp, member, 0)
    push(ssp, "a", 1)
    push(ssp, "c", 1)
    assert push(ssp, "a", 2) == [Aggregate(0, 2, ("a",))], "b has not done round 1"
    assert ssp.on_member_lost("b") == [Reply(0, (2,), ("a",), by="b")]


def test_who_joins_ssp_begins_with_the_slowest() -> None:
    ssp = policy("ssp", staleness=3)
    ssp.on_member_lost("b")
    for round_ in range(3):
        push(ssp, "a", round_)
    push(ssp, "c", 0)
    assert ssp.on_member_joined("b") == 1
    assert push(ssp, "b", 1)[0] == Aggregate(0, 1, ("b",))


def test_who_was_there_before_its_server_has_joined_begins_where_the_server_does() -> None:
    ssp = policy("ssp", staleness=3)
    assert ssp.on_member_joined("b") == 0, "the server has not heard yet how far the others are"
    ssp.begin_at(7)
    assert push(ssp, "b", 7)[0] == Aggregate(0, 7, ("b",))
