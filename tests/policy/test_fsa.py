"""FSA: a round is complete when all have pushed; the order of arrival decides nothing."""

from __future__ import annotations

import itertools

import pytest

from testbed.policy.events import Answer, Combine
from testbed.policy.sync.fsa import Fsa

MEMBERS = ("a/worker0", "a/worker1", "b/worker0")


@pytest.mark.parametrize("arrival", list(itertools.permutations(MEMBERS)))
def test_completes_with_the_last_push_in_rank_order(arrival: tuple[str, ...]) -> None:
    policy = Fsa(MEMBERS, Fsa.Options())
    for member in arrival[:-1]:
        assert policy.on_push(member, 3, 7, now=1.0) == []
    assert policy.on_push(arrival[-1], 3, 7, now=2.0) == [Combine(3, 7, MEMBERS), Answer(3, 7, MEMBERS)]


def test_keys_and_rounds_do_not_mix() -> None:
    policy = Fsa(MEMBERS[:2], Fsa.Options())
    assert policy.on_push(MEMBERS[0], 0, 0, 0.0) == []
    assert policy.on_push(MEMBERS[1], 1, 0, 0.0) == []
    assert policy.on_push(MEMBERS[1], 0, 1, 0.0) == []
    assert policy.waiting_for(0, 0) == (MEMBERS[1],)
    assert policy.on_push(MEMBERS[1], 0, 0, 0.0) == [Combine(0, 0, MEMBERS[:2]), Answer(0, 0, MEMBERS[:2])]
    assert policy.waiting_for(0, 0) == ()


def test_a_second_push_of_the_same_round_is_our_own_mistake() -> None:
    policy = Fsa(MEMBERS, Fsa.Options())
    policy.on_push(MEMBERS[0], 0, 0, 0.0)
    with pytest.raises(AssertionError, match="twice"):
        policy.on_push(MEMBERS[0], 0, 0, 0.0)
