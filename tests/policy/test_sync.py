"""Synchronisation policies, driven by lists of pushes: who waits, what is combined, who is answered."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.policy.events import Aggregate, Contribution, Effect, Push, Reply, WorkerReport
from testbed.policy.sync.asynchronous import MixedSync, Tap
from testbed.policy.sync.base import SyncPolicy, Tier
from testbed.policy.sync.diloco import DiLoCo
from testbed.policy.sync.esync import ESync, balanced_steps
from testbed.policy.sync.fsa import Fsa
from testbed.policy.sync.hfa import Hfa
from testbed.policy.sync.ssp import Ssp
from tests.for_each import for_each

MEMBERS = ("a/worker0", "a/worker1", "b/worker0")


def push(policy: SyncPolicy, member: str, round_: int, key: int = 0) -> list[Effect]:
    return policy.on_push(Push(member, key, round_))


def race(policy: SyncPolicy, speeds: dict[str, float], rounds: int) -> dict[str, list[int]]:
    """Members that push as soon as they may: the order of answered rounds, and the clocks at each push."""
    due = dict(speeds)
    clock = dict.fromkeys(speeds, 0)
    leads: list[int] = []
    answered: dict[str, list[int]] = {member: [] for member in speeds}
    while due:
        member = min(due, key=lambda name: (due[name], name))
        now = due.pop(member)
        effects = policy.on_push(Push(member, 0, clock[member], now))
        clock[member] += 1
        leads.append(max(clock.values()) - min(clock.values()))
        for effect in effects:
            if isinstance(effect, Reply):
                for freed, round_ in zip(effect.members, effect.rounds, strict=True):
                    answered[freed].append(round_)
                    if round_ + 1 < rounds:
                        due[freed] = now + speeds[freed]
    return answered | {"leads": leads}


@for_each("arrival", list(itertools.permutations(MEMBERS)))
def test_fsa_completes_with_the_last_push_in_rank_order(arrival: tuple[str, ...]) -> None:
    policy = Fsa(Tier.of(*MEMBERS), Fsa.Options())
    for member in arrival[:-1]:
        assert push(policy, member, 7, key=3) == []
    assert push(policy, arrival[-1], 7, key=3) == [Aggregate(3, 7, MEMBERS), Reply(3, (7, 7, 7), MEMBERS)]


def test_fsa_keeps_keys_and_rounds_apart() -> None:
    policy = Fsa(Tier.of(*MEMBERS[:2]), Fsa.Options())
    assert push(policy, MEMBERS[0], 0, key=0) == []
    assert push(policy, MEMBERS[1], 0, key=1) == []
    assert push(policy, MEMBERS[1], 1, key=0) == []
    assert policy.waiting_for(0, 0) == (MEMBERS[1],)
    assert push(policy, MEMBERS[1], 0, key=0)[0] == Aggregate(0, 0, MEMBERS[:2])
    assert policy.waiting_for(0, 0) == ()


def test_a_second_push_of_the_same_round_is_our_own_mistake() -> None:
    for kind in (Fsa, Hfa, ESync, DiLoCo):
        policy = kind(Tier.of(*MEMBERS), kind.Options())
        push(policy, MEMBERS[0], 0)
        with pytest.raises(AssertionError, match="twice"):
            push(policy, MEMBERS[0], 0)


@for_each("kind", [Tap, MixedSync])
def test_asynchronous_pushes_are_applied_and_answered_alone(kind: type[Tap]) -> None:
    policy = kind(Tier.of(*MEMBERS), kind.Options())
    for round_, member in enumerate((MEMBERS[0], MEMBERS[0], MEMBERS[2])):
        expected = [Aggregate(0, round_, (member,)), Reply(0, (round_,), (member,))]
        assert push(policy, member, round_) == expected


@given(st.integers(0, 6), st.lists(st.floats(0.1, 10), min_size=2, max_size=5))
def test_ssp_never_leads_by_more_than_its_bound_and_answers_everything_once(bound: int, times: list[float]) -> None:
    speeds = {f"m{number}": time for number, time in enumerate(times)}
    result = race(Ssp(Tier.of(*tuple(speeds)), Ssp.Options(staleness=bound)), speeds, rounds=12)
    assert max(result.pop("leads")) <= bound + 1
    assert all(rounds == list(range(12)) for rounds in result.values())


def test_ssp_without_a_bound_is_tap() -> None:
    speeds = {"slow": 3.0, "fast": 0.5, "middle": 1.0}
    loose = race(Ssp(Tier.of(*tuple(speeds)), Ssp.Options(staleness=10**9)), speeds, rounds=9)
    assert loose == race(Tap(Tier.of(*tuple(speeds)), Tap.Options()), speeds, rounds=9)


def test_hfa_goes_up_every_k2th_round_for_every_key() -> None:
    policy = Hfa(Tier.of(*MEMBERS), Hfa.Options(k1=20, k2=3))
    ups = []
    for round_ in range(9):
        for key in (5, 2):  # whatever keys there are
            for member in MEMBERS:
                effects = push(policy, member, round_, key)
            combine = effects[0]
            assert isinstance(combine, Aggregate)
            ups.append((round_, key, combine.up))
    assert {(round_, up) for round_, _, up in ups} == {(round_, round_ % 3 == 2) for round_ in range(9)}
    assert Hfa.contribution is Contribution.MODEL
    assert Hfa.local_steps(Hfa.Options(k1=20), 7) == 20


def test_esync_golden_three_steps_against_one() -> None:
    """The original's example: steps of 4 s and 1 s, half a second of slack, free transfers: 4 of the fast, 1 slow.

    GeoMX' state server decides after each step with a slack; planned, four steps of 1 s end with the slow one's.
    """
    reports = {"slow": WorkerReport(4.0, 0.0), "fast": WorkerReport(1.0, 0.0)}
    assert balanced_steps(reports, ESync.Options()) == {"slow": 1, "fast": 4}
    reports["fast"] = WorkerReport(1.0, 1.0)  # its transfer takes a second longer: one step less
    assert balanced_steps(reports, ESync.Options()) == {"slow": 1, "fast": 3}


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 10)), min_size=1, max_size=8))
def test_esync_reach_times_differ_by_less_than_one_step(pairs: list[tuple[float, float]]) -> None:
    reports = {f"w{number}": WorkerReport(*pair) for number, pair in enumerate(pairs)}
    steps = balanced_steps(reports, ESync.Options(max_steps=10**6))
    latest = max(report.step_s + report.transfer_s for report in reports.values())
    for worker, report in reports.items():
        reach = steps[worker] * report.step_s + report.transfer_s
        assert steps[worker] >= 1
        assert reach <= latest * (1 + 1e-6) + 1e-6
        assert reach > latest - report.step_s * (1 + 1e-6) - 1e-6
    slowest = max(reports, key=lambda worker: reports[worker].step_s + reports[worker].transfer_s)
    assert steps[slowest] == 1


def test_esync_waits_for_nobody_who_is_gone() -> None:
    """At the global servers members are data centres: neither a worker of one nor a whole one leaves a ghost."""
    policy = ESync(Tier.of("a/server0", "b/server0"), ESync.Options())
    quick, slow, slower = WorkerReport(1.0, 0.0), WorkerReport(4.0, 0.0), WorkerReport(8.0, 0.0)

    def steps(round_: int, **reports: dict[str, WorkerReport]) -> dict[str, int]:
        for member, said in reports.items():
            effects = policy.on_push(Push(f"{member}/server0", 0, round_, 0.0, said))
        answer = effects[-1]
        assert isinstance(answer, Reply)
        return dict(answer.steps)

    both = {"a/worker0": quick, "a/worker1": slower}
    assert steps(0, a=both, b={"b/worker0": slow}) == {"a/worker0": 8, "a/worker1": 1, "b/worker0": 2}
    assert steps(1, a={"a/worker0": quick}, b={"b/worker0": slow}) == {"a/worker0": 4, "b/worker0": 1}
    kept, policy = policy.state(), ESync(Tier.of("a/server0", "b/server0"), ESync.Options())
    policy.load_state(kept)
    assert steps(2, a={"a/worker0": quick}, b={"b/worker0": slow}) == {"a/worker0": 4, "b/worker0": 1}
    policy.regroup({"a/server0": 0})
    assert steps(3, a={"a/worker0": quick}) == {"a/worker0": 1}


def test_esync_knows_the_latest_of_everybody_when_relays_say_it_in_others_names() -> None:
    """In a tree the first member of a sum speaks for all whose contributions are in it, and trees change."""
    policy = ESync(Tier.of(*MEMBERS), ESync.Options())
    reports = {member: WorkerReport(1.0 + number, 0.0) for number, member in enumerate(MEMBERS)}
    for round_, sums in enumerate(([(0, 1, 2)], [(0,), (1, 2)], [(1, 2), (0,)], [(0, 2), (1,)], [(2,), (0, 1)])):
        reports = {member: WorkerReport(report.step_s * 2, 0.0) for member, report in reports.items()}
        for members in sums:
            for number in members:
                said = {MEMBERS[each]: reports[MEMBERS[each]] for each in members} if number == members[0] else {}
                effects = policy.on_push(Push(MEMBERS[number], 0, round_, 0.0, said))
        answer = effects[-1]
        assert isinstance(answer, Reply) and answer.steps == balanced_steps(reports, ESync.Options())
        assert set(answer.steps) == set(MEMBERS)


def test_esync_does_not_believe_one_slow_transfer() -> None:
    policy = ESync(Tier.of("a", "b"), ESync.Options())

    def steps(round_: int, transfer_s: float) -> Mapping[str, int]:
        policy.on_push(Push("a", 0, round_, reports={"a": WorkerReport(1.0, transfer_s)}))
        (*_, answer) = policy.on_push(Push("b", 0, round_, reports={"b": WorkerReport(0.1, 1.0)}))
        assert isinstance(answer, Reply)
        return answer.steps

    usual = {"a": 1, "b": 10}
    assert [steps(round_, 1.0) for round_ in range(2)] == [usual] * 2
    assert steps(2, 9.0) == usual, "one slow transfer"
    assert steps(3, 1.0) == usual
    assert steps(4, 1.0) == usual
    assert [steps(round_, 9.0) for round_ in (5, 6)] == [usual, {"a": 1, "b": 90}], "two of three"
