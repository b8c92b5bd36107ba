"""When a round with a quorum closes, what becomes of late contributions, and the contract with all options."""

from __future__ import annotations

from typing import Any

from testbed.policy.events import Aggregate, Alarm, Discard, Effect, Push, Reply
from testbed.policy.sync import SYNC
from testbed.policy.sync.base import Tier
from testbed.policy.sync.quorum import Quorum
from testbed.testing.contracts import failures
from testbed.testing.subject import Subject
from tests.for_each import for_each

MEMBERS = ("a", "b", "c", "d")


class Rounds:
    """A quorum over four members."""

    def __init__(self, **options: Any) -> None:
        self.policy = Quorum(Tier.of(*MEMBERS), Quorum.Options(**options))

    def push(self, member: str, round_: int, now_s: float) -> list[Effect]:
        return self.policy.on_push(Push(member, 0, round_, now_s))


def combined(members: str, *rounds: int) -> list[Effect]:
    return [Aggregate(0, max(rounds), tuple(members), rounds=rounds), Reply(0, rounds, tuple(members))]


def test_a_round_closes_with_its_quorum_and_a_late_contribution_is_one_to_the_next() -> None:
    rounds = Rounds(quorum=2)
    assert rounds.push("c", 0, 1.0) == []
    assert rounds.policy.waiting_for(0, 0) == ("a", "b", "d")
    assert rounds.push("a", 0, 2.0) == combined("ac", 0, 0)
    assert rounds.push("d", 0, 3.0) == []  # late: of the round that is open
    assert rounds.push("a", 1, 4.0) == combined("ad", 1, 0)


def test_a_late_contribution_may_be_dropped_and_its_member_goes_on_at_once() -> None:
    rounds = Rounds(quorum=2, stragglers="drop")
    rounds.push("c", 0, 1.0)
    rounds.push("a", 0, 2.0)
    assert rounds.push("d", 0, 3.0) == [Discard(0, 0, "d"), Reply(0, (0,), ("d",))]
    assert rounds.push("d", 1, 3.5) == []  # made from the newest values: it counts
    assert rounds.push("a", 1, 4.0) == combined("ad", 1, 1)


def test_a_window_of_grace_begins_with_the_quorum_and_ends_when_all_are_there() -> None:
    rounds = Rounds(quorum=2, grace_s=5.0)
    assert rounds.push("a", 0, 1.0) == []
    assert rounds.push("b", 0, 2.0) == [Alarm(0, 0, 7.0)]
    assert rounds.push("c", 0, 3.0) == []  # the window is not made longer
    assert rounds.policy.on_alarm(0, 0, 7.0) == combined("abc", 0, 0, 0)
    for member, now_s in (("a", 8.0), ("b", 9.0), ("c", 9.5)):
        rounds.push(member, 1, now_s)
    assert rounds.push("d", 0, 10.0) == combined("abcd", 1, 1, 1, 0)
    assert rounds.policy.on_alarm(0, 1, 14.0) == []  # of the round that has closed


def test_an_adaptive_window_waits_for_whom_it_pays_to_wait_for() -> None:
    rounds = Rounds(quorum=2, adaptive=True)
    rounds.push("a", 0, 10.0)
    assert rounds.push("b", 0, 10.0) == combined("ab", 0, 0)  # of the others nothing is known yet
    rounds.push("c", 0, 12.0)
    assert rounds.push("d", 0, 40.0) == combined("cd", 0, 0)
    assert rounds.push("a", 1, 50.0) == []
    # c takes 12 s after its answer at 40 s: 3 in 12 s are more than 2 in 10 s. d takes 40 s: 4 in 40 s are not
    assert rounds.push("b", 1, 50.0) == [Alarm(0, 2, 52.0)]
    assert rounds.push("c", 1, 51.0) == combined("abc", 1, 1, 1)
    # of c's last two contributions, which took 12 and 11 s, the lower median counts
    assert rounds.push("a", 2, 61.0) == []
    assert rounds.push("b", 2, 61.0) == [Alarm(0, 3, 62.0)]


def test_fewer_members_need_fewer_and_the_lost_are_forgotten() -> None:
    rounds = Rounds(quorum=3)
    rounds.push("a", 0, 1.0)
    rounds.push("b", 0, 1.0)
    assert rounds.policy.regroup({"a": 0, "c": 0, "d": 0}) == [Discard(0, 0, "b")]
    assert rounds.policy.on_members_left(("c", "d")) == combined("a", 0)


@for_each(
    "options",
    [
        {"quorum": 2, "grace_s": 20.0},
        {"quorum": 2, "adaptive": True},
        {"quorum": 1, "stragglers": "drop", "grace_s": 3.0},
    ],
)
def test_the_contract_holds_with_every_option(options: dict[str, Any]) -> None:
    assert failures(Subject(SYNC, "quorum", options)) == []
