"""Who is there, as a server sees it: members that come back begin with the values of the round before their first."""

from __future__ import annotations

from testbed.engine.membership_view import MembershipView
from testbed.policy.events import Push
from testbed.policy.sync.base import Tier
from testbed.policy.sync.fsa import Fsa

KEY = 0


def presence() -> tuple[MembershipView, Fsa]:
    policy = Fsa(Tier.of("a", "b", "c"), Fsa.Options())
    return MembershipView(dict.fromkeys("abc", 1.0), policy), policy


def test_who_comes_back_in_a_round_waits_for_its_end() -> None:
    present, policy = presence()
    present.on_member_lost("c")
    policy.on_push(Push("a", KEY, 0))
    assert present.on_declared("c") and present.first_round("c") == 1
    assert not present.may_pull(KEY, "c"), "its value would be older than what round 1 begins with"
    assert policy.on_push(Push("b", KEY, 0))
    assert present.on_aggregated(KEY, 0) == ["c"] and present.may_pull(KEY, "c")


def test_between_two_rounds_it_need_not() -> None:
    present, policy = presence()
    present.on_member_lost("c")
    for member in "ab":
        policy.on_push(Push(member, KEY, 0))
    present.on_aggregated(KEY, 0)
    assert present.on_declared("c") and present.first_round("c") == 1 and present.may_pull(KEY, "c")


def test_who_never_left_joins_nothing() -> None:
    present, _ = presence()
    assert not present.on_declared("a") and present.first_round("a") == 0 and present.may_pull(KEY, "a")


def test_who_goes_on_from_another_server_keeps_its_first_round() -> None:
    present, policy = presence()
    present.on_member_lost("c")
    present.resume_member("c", 5)
    assert present.first_round("c") == 5
    for round_ in (4, 5):
        for member in "ab":
            effects = policy.on_push(Push(member, KEY, round_))
        assert bool(effects) == (round_ == 4), "from its first round on it is waited for"
