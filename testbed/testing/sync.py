"""The contract of a synchronisation algorithm (``docs/axes/sync.md``), by random schedules on every declared tier."""

from __future__ import annotations

import math
from dataclasses import replace

from testbed.policy.events import Contribution
from testbed.policy.sync import SYNC
from testbed.policy.sync.base import WEIGHTS, SyncPolicy
from testbed.testing.requirement import Broken, plain_state, require, requirement
from testbed.testing.schedule import ROUNDS, PushSchedule, TierCase
from testbed.testing.subject import Subject
from testbed.training.options import OPTIMIZERS

SEEDS = range(6)
_ROUNDS = (*range(30), 99, 1000)
_TIER_1 = TierCase("tier 1", number=1, top=False)


def tier_cases(subject: Subject) -> list[TierCase]:
    """Return a case for each kind of tier that the algorithm declares."""
    entry: type[SyncPolicy] = subject.entry
    found = [_TIER_1] if 1 in entry.tiers else []
    if 2 in entry.tiers:
        found.append(TierCase("tier 2", number=2, top=True, spacing=entry.lan_rounds(subject.options)))
        found.append(TierCase("one tier", number=2, top=True))
        if not entry.waits and entry.contribution is Contribution.GRADIENT:  # others need a waiting algorithm below
            found.append(TierCase("tier 2 over workers that do not wait", number=2, top=True, pushes_per_round=2))
    return found


@requirement("compute a whole number from 1 from options and round alone")
def local_steps_are_pure_and_at_least_one(subject: Subject) -> None:
    """For each round, local_steps always returns the same whole number of at least 1; with gradients, it returns 1."""
    entry: type[SyncPolicy] = subject.entry
    steps = {round_: entry.local_steps(subject.options, round_) for round_ in _ROUNDS}
    again = {round_: entry.local_steps(subject.options, round_) for round_ in reversed(_ROUNDS)}
    for round_, count in steps.items():
        require(isinstance(count, int) and count >= 1, f"{count!r} in round {round_}")
        require(again[round_] == count, f"round {round_} had {count} steps, then {again[round_]}")
    one = entry.contribution is not Contribution.GRADIENT or set(steps.values()) == {1}
    require(one, f"{max(steps.values())} steps for a gradient", "declare contribution = Contribution.MODEL or DELTA")


@requirement("correct the declaration; docs/axes/sync.md lists them")
def declarations_are_valid(subject: Subject) -> None:
    """Declarations have values that the engine knows, and do not contradict each other."""
    entry: type[SyncPolicy] = subject.entry
    options = subject.options
    rounds = entry.lan_rounds(options)
    slack_s = entry.slack_s(options)
    facts = {
        f"contribution {entry.contribution!r}": isinstance(entry.contribution, Contribution),
        f"tiers {entry.tiers!r}, not out of 1 and 2": bool(entry.tiers) and set(entry.tiers) <= {1, 2},
        f"spans_tiers with tiers {entry.tiers!r}": not entry.spans_tiers or set(entry.tiers) == {1, 2},
        f"partner {entry.partner!r} of no kind of this axis": not entry.partner or entry.partner in SYNC,
        "holds, and waits": not (entry.waits and entry.holds),
        f"lan_rounds of {rounds!r}, not at least 1": isinstance(rounds, int) and rounds >= 1,
        f"slack_s of {slack_s!r}, not 0 or more": math.isfinite(slack_s) and slack_s >= 0,
        f"weights {entry.weights(options)!r}": entry.weights(options) in WEIGHTS["choices"],
    }
    for happened, fits in facts.items():
        require(fits, happened)
    if outer := entry.outer_optimizer(options):
        require(outer[0] in OPTIMIZERS, f"outer_optimizer {outer!r}", "name a kind of optimizer, and its options")
        OPTIMIZERS.options(*outer)


@requirement("forget a round when it is complete, and reply to each of its members")
def every_push_is_aggregated_once_and_answered_once(subject: Subject) -> None:
    """In any order of arrival, each push is aggregated once, in rank order, and then answered once."""
    for case in tier_cases(subject):
        for seed in SEEDS:
            PushSchedule(subject, case, seed).run()
        PushSchedule(subject, replace(case, slow=True), 0).run()


@requirement("let regroup forget rounds that are not complete, and wait for each member from its first round on")
def members_are_lost_and_join_again(subject: Subject) -> None:
    """When members are lost and join again, nothing waits for a lost member, and no other push is forgotten."""
    for case in tier_cases(subject):
        for seed in SEEDS:
            PushSchedule(subject, replace(case, losses=2), seed).run()


@requirement("let on_members_left release members that wait for them")
def members_that_leave_are_not_waited_for(subject: Subject) -> None:
    """With waits = False, members may end before others, and the others then do not wait for them."""
    for case in tier_cases(subject) if not subject.entry.waits else ():
        for seed in SEEDS:
            PushSchedule(subject, replace(case, ends=True), seed).run()


@requirement("put all that decisions depend on besides the round into state()")
def state_is_taken_over(subject: Subject) -> None:
    """If a run begins at a later round, a new instance decides like the old one after regroup and load_state."""
    if not subject.entry.pauses:
        return
    for case in tier_cases(subject):
        first = replace(case, spacing=1)
        later = replace(case, spacing=1, begin=ROUNDS)
        for seed in SEEDS[::2]:
            old = PushSchedule(subject, first, seed).run().policy
            state = plain_state(old)
            new: SyncPolicy = subject.entry(case.tier(), subject.options)
            new.regroup(dict.fromkeys(case.tier().names, ROUNDS))
            new.load_state(state)
            old_trace, new_trace = (PushSchedule(subject, later, seed, policy=each).run().trace for each in (old, new))
            require(
                old_trace == new_trace, f"{case.name}: other effects than those of the instance that gave the state"
            )


@requirement("declare waits = True")
def waits_is_declared_as_it_behaves(subject: Subject) -> None:
    """With waits = False, some aggregate is made while a member is missing. (All schedules check waits = True.)"""
    if not subject.entry.waits:
        slow = [PushSchedule(subject, replace(case, slow=True), 0).run() for case in tier_cases(subject)]
        require(any(each.aggregated_early for each in slow), "every aggregate held all members")


@requirement("assign steps in Reply, or declare assigns_steps = False")
def assigned_steps_are_declared(subject: Subject) -> None:
    """With assigns_steps = True, replies assign steps; on tier 1 they do not if the tier above assigns steps."""
    entry: type[SyncPolicy] = subject.entry
    assigned = any(PushSchedule(subject, case, 0).run().assigned for case in tier_cases(subject))
    require(assigned or not entry.assigns_steps or subject.values, "no reply assigns any")
    if 1 in entry.tiers:
        PushSchedule(subject, replace(_TIER_1, steps_assigned_above=True), 0).run()


@requirement("set Aggregate.up from the round alone, as lan_rounds declares it")
def aggregates_go_up_every_lan_rounds(subject: Subject) -> None:
    """On tier 1, aggregates go up in the rounds r for which r + 1 is divisible by lan_rounds."""
    entry: type[SyncPolicy] = subject.entry
    if 1 not in entry.tiers:
        return
    every = entry.lan_rounds(subject.options)
    case = replace(_TIER_1, begin=3 * every - 1 if entry.waits else 0)
    passed_up = PushSchedule(subject, case, 0).run().rounds_passed_up
    require(passed_up, f"none went up, with lan_rounds = {every}")
    for key, rounds in passed_up.items():
        wrong = sorted(round_ for round_ in rounds if (round_ + 1) % every)
        require(not wrong, f"with lan_rounds = {every}, key {key} goes up in rounds {wrong}")


@requirement("keep state on self; use no random numbers, clocks, or sets in iteration order")
def instances_share_no_state(subject: Subject) -> None:
    """An instance decides the same if another one lives in the same process, as two servers may."""
    for case in tier_cases(subject):
        alone = [PushSchedule(subject, case, seed).run().trace for seed in (4, 5)]
        both = [PushSchedule(subject, case, seed) for seed in (4, 5)]
        moved = True
        try:
            while moved:
                moved = max([schedule.step() for schedule in both])
        except Broken as broken:
            raise Broken(f"beside another instance: {broken.happened}") from None
        require([each.trace for each in both] == alone, f"{case.name}: other effects when there is another instance")
