"""Checks of a synchronisation algorithm (``docs/axes/sync.md``), by random schedules on every tier it declares."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from testbed.policy.events import Contribution
from testbed.policy.sync import SYNC
from testbed.policy.sync.base import SyncPolicy
from testbed.testing.subject import Subject
from testbed.testing.sync_schedule import ROUNDS, Changes, PushSchedule, TierCase
from testbed.testing.verdict import plain_state, require
from testbed.training.options import OPTIMIZERS

SEEDS = range(6)
_ROUNDS = (*range(30), 99, 1000)


def tier_cases(subject: Subject) -> list[TierCase]:
    """Return the tiers that the algorithm declares, as cases to check."""
    entry: type[SyncPolicy] = subject.entry
    found = []
    if 1 in entry.tiers:
        found.append(TierCase("tier 1", number=1, top=False))
    if 2 in entry.tiers:
        found.append(TierCase("tier 2", number=2, top=True, spacing=entry.lan_rounds(subject.options)))
        found.append(TierCase("one tier", number=2, top=True))
        if not entry.waits:
            found.append(TierCase("tier 2 over workers that do not wait", number=2, top=True, pushes_per_round=2))
    return found


def local_steps_are_pure_and_at_least_one(subject: Subject) -> None:
    entry: type[SyncPolicy] = subject.entry
    options = subject.options
    steps = {round_: entry.local_steps(options, round_) for round_ in _ROUNDS}
    for round_, count in steps.items():
        require(
            isinstance(count, int) and count >= 1, "local_steps of at least 1", f"{count!r} in round {round_}",
            "return a whole number from 1",
        )  # fmt: skip
    order = random.Random(0).sample(_ROUNDS, len(_ROUNDS))
    again = {round_: entry.local_steps(subject.options, round_) for round_ in order}
    changed = sorted(round_ for round_ in _ROUNDS if again[round_] != steps[round_])
    require(
        not changed, "the same local_steps whenever a round is asked for",
        f"round {changed[0] if changed else 0} had {steps[changed[0]] if changed else 0} steps, "
        f"then {again[changed[0]] if changed else 0}",
        "compute them from options and round alone",
    )  # fmt: skip
    require(
        entry.contribution is not Contribution.GRADIENT or set(steps.values()) == {1},
        "one local step where workers push gradients", f"local_steps of {max(steps.values())}",
        "declare contribution = Contribution.MODEL or DELTA",
    )  # fmt: skip


def declarations_are_valid(subject: Subject) -> None:
    entry: type[SyncPolicy] = subject.entry
    options = subject.options
    facts: list[tuple[bool, str, Any]] = [
        (isinstance(entry.contribution, Contribution), "contribution of the type Contribution", entry.contribution),
        (bool(entry.tiers) and set(entry.tiers) <= {1, 2}, "tiers out of 1 and 2", entry.tiers),
        (not entry.spans_tiers or set(entry.tiers) == {1, 2}, "both tiers where spans_tiers is true", entry.tiers),
        (not entry.partner or entry.partner in SYNC, "partner: a kind of this axis", entry.partner),
        (not (entry.waits and entry.holds), "holds only where waits is false", (entry.waits, entry.holds)),
    ]
    rounds, slack_s = entry.lan_rounds(options), entry.slack_s(options)
    facts += [
        (isinstance(rounds, int) and rounds >= 1, "lan_rounds of at least 1", rounds),
        (math.isfinite(slack_s) and slack_s >= 0, "slack_s in seconds, 0 or more", slack_s),
        (
            entry.weights(options) in ("party", "worker", "sample"),
            "weights: party, worker or sample",
            entry.weights(options),
        ),
    ]
    for fits, expected, happened in facts:
        require(fits, expected, repr(happened), "correct the declaration; docs/axes/sync.md lists them")
    outer = entry.outer_optimizer(options)
    if outer is not None:
        require(
            outer[0] in OPTIMIZERS,
            "outer_optimizer: a kind of optimizer and its options",
            repr(outer),
            "name a shipped one",
        )
        OPTIMIZERS.options(*outer)


def every_push_is_aggregated_once_and_answered_once(subject: Subject) -> None:
    for case in tier_cases(subject):
        for seed in SEEDS:
            PushSchedule(subject, case, seed).run()
        PushSchedule(subject, case, 0, Changes(slow=True)).run()


def members_are_lost_and_join_again(subject: Subject) -> None:
    for case in tier_cases(subject):
        for seed in SEEDS:
            PushSchedule(subject, case, seed, Changes(losses=2)).run()


def members_that_leave_are_not_waited_for(subject: Subject) -> None:
    if subject.entry.waits:
        return  # no member can end before the others
    for case in tier_cases(subject):
        for seed in SEEDS:
            PushSchedule(subject, case, seed, Changes(ends=True)).run()


def a_resumed_run_begins_at_its_round(subject: Subject) -> None:
    for case in tier_cases(subject):
        PushSchedule(subject, replace(case, spacing=1, begin=4), 1).run()


def state_is_taken_over(subject: Subject) -> None:
    """A new instance with the state of one whose rounds have all ended decides what that one would."""
    for case in tier_cases(subject):
        first, later = replace(case, spacing=1), replace(case, spacing=1, begin=ROUNDS)
        for seed in SEEDS[::2]:
            old = PushSchedule(subject, first, seed).run().policy
            state = plain_state(old)
            new: SyncPolicy = subject.entry(case.tier(), subject.options)
            new.begin_at(ROUNDS)
            new.load_state(state)
            traces = [PushSchedule(subject, later, seed, policy=policy).run().trace for policy in (old, new)]
            require(
                traces[0] == traces[1], "equal effects after begin_at(round) and load_state(state())",
                f"{case.name}: other ones than those of the instance that gave the state",
                "put all that decisions depend on besides the round into state()",
            )  # fmt: skip


def waits_is_declared_as_it_behaves(subject: Subject) -> None:
    if subject.entry.waits:
        return  # every schedule checks it
    early = [PushSchedule(subject, case, 0, Changes(slow=True)).run().aggregated_early for case in tier_cases(subject)]
    require(
        any(early), "waits = False: an aggregate while members are missing", "every aggregate held all members",
        "declare waits = True",
    )  # fmt: skip


def assigned_steps_are_declared(subject: Subject) -> None:
    entry: type[SyncPolicy] = subject.entry
    assigned = [count for case in tier_cases(subject) for count in PushSchedule(subject, case, 0).run().assigned]
    require(
        assigned or not entry.assigns_steps or subject.values, "assigns_steps = True: steps in replies",
        "none in any reply",
        "assign steps in Reply, or declare assigns_steps = False",
    )  # fmt: skip
    if 1 in entry.tiers:
        PushSchedule(subject, TierCase("tier 1", number=1, top=False, steps_assigned_above=True), 0).run()


def aggregates_go_up_every_lan_rounds(subject: Subject) -> None:
    entry: type[SyncPolicy] = subject.entry
    every = entry.lan_rounds(subject.options)
    if 1 not in entry.tiers:
        return
    rounds_passed_up = (
        PushSchedule(subject, TierCase("tier 1", number=1, top=False, begin=3 * every - 1 if entry.waits else 0), 0)
        .run()
        .rounds_passed_up
    )
    for key, rounds in rounds_passed_up.items():
        wrong = sorted(round_ for round_ in rounds if (round_ + 1) % every)
        require(
            not wrong, f"up in rounds r with (r + 1) divisible by lan_rounds = {every}",
            f"key {key} goes up in {wrong}",
            "set Aggregate.up from the round alone, as lan_rounds declares it",
        )  # fmt: skip
    require(rounds_passed_up, f"an aggregate that goes up every {every} rounds", "none went up", "set Aggregate.up")


def a_replica_takes_over(subject: Subject) -> None:
    if not subject.entry.supports_failover:
        return
    schedule = PushSchedule(subject, TierCase("one tier, on a replica", number=2, top=True), 2)
    schedule.resume_all(3)
    schedule.run()


def the_same_pushes_give_the_same_effects(subject: Subject) -> None:
    for case in tier_cases(subject):
        traces = [PushSchedule(subject, case, 3, Changes(losses=1)).run().trace for _ in range(2)]
        require(
            traces[0] == traces[1], "equal effects for equal pushes", f"{case.name}: two new instances differ",
            "use no random numbers, clocks, sets in iteration order, or state outside the instance",
        )  # fmt: skip


def instances_share_no_state(subject: Subject) -> None:
    """Two servers may live in one process: alternate their pushes, and compare with each one alone."""
    for case in tier_cases(subject):
        alone = [PushSchedule(subject, case, seed).run().trace for seed in (4, 5)]
        both = [PushSchedule(subject, case, seed) for seed in (4, 5)]
        moved = True
        while moved:
            moved = max([schedule.step() for schedule in both])
        for schedule, trace in zip(both, alone, strict=True):
            require(
                schedule.trace == trace, "instances that share nothing",
                f"{case.name}: beside another instance, other effects than alone",
                "keep state on self, not on the class or the module",
            )  # fmt: skip
