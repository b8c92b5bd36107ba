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
def test_a_round_is_made_again_by_those_who_are_left(kind: str) -> None:
    fsa = policy(kind)
    assert push(fsa, "a", 0) == push(fsa, "b", 0) == []
    assert fsa.regroup({"a": 0, "c": 0}) == [] and fsa.waiting_for(0, 0) == ()
    assert push(fsa, "c", 0) == [] and fsa.waiting_for(0, 0) == ("a",)
    combine, answer = push(fsa, "a", 0)
    assert combine.members == answer.members == ("a", "c") and answer.rounds == (0, 0) and answer.by == "a"


def test_who_joins_is_waited_for_from_its_first_round_on() -> None:
    fsa = policy("fsa")
    fsa.regroup({"a": 0, "b": 2, "c": 0})
    push(fsa, "a", 1)
    assert push(fsa, "c", 1)[0].members == ("a", "c")
    push(fsa, "a", 2)
    assert push(fsa, "c", 2) == [] and fsa.waiting_for(0, 2) == ("b",)
    assert push(fsa, "b", 2)[0].members == ABC


def test_who_was_held_for_the_dead_goes_on_in_ssp() -> None:
    ssp = policy("ssp", staleness=1)
    for member in ABC:
        push(ssp, member, 0)
    push(ssp, "a", 1)
    push(ssp, "c", 1)
    assert push(ssp, "a", 2) == [Aggregate(0, 2, ("a",))], "b has not done round 1"
    assert ssp.regroup({"a": 0, "c": 0}) == [Reply(0, (2,), ("a",))]


def test_who_joins_ssp_holds_others_back_from_its_first_round_on() -> None:
    ssp = policy("ssp", staleness=1)
    ssp.regroup({"a": 0, "c": 0})
    for round_ in range(4):
        push(ssp, "c", round_)
        assert push(ssp, "a", round_)
    ssp.regroup({"a": 0, "b": 3, "c": 0})
    push(ssp, "c", 4)
    assert push(ssp, "a", 4) == [Aggregate(0, 4, ("a",))] and ssp.waiting_for(0, 4) == ("b",)
    assert [type(effect) for effect in push(ssp, "b", 3)] == [Aggregate, Reply]
