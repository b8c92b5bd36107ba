"""Drive a synchronisation policy as a server does, by a random schedule, and check every effect against the contract.

A *case* describes the tier that the policy serves. A schedule derives from its seed which member pushes next, which is
lost, which joins and which leaves. It has no clock, so every order of arrival can occur.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.policy.events import Aggregate, Effect, Push, Reply, WorkerReport
from testbed.policy.sync.base import Member, SyncPolicy, Tier, WorkerDevice
from testbed.testing.subject import Subject
from testbed.testing.verdict import CheckFailed, require

KEYS = 2
ROUNDS = 7  # that every member pushes
_ROUND_S = 100.0  # more than one has events


@dataclass(frozen=True, slots=True)
class TierCase:
    """A tier on which a policy is checked.

    number            of the tier, 1 or 2; ``top``: whether its aggregates go to no further tier
    spacing           the policy sees one round of this many: LAN rounds per round that crosses the WAN
    pushes_per_round  of each member; more than one where its workers do not wait for each other
    begin             the first round; above 0 after a run was resumed
    """

    name: str
    number: int
    top: bool
    spacing: int = 1
    pushes_per_round: int = 1
    begin: int = 0
    steps_assigned_above: bool = False

    def tier(self) -> Tier:
        """Return the tier of three members, with two workers each on tier 2."""
        return Tier(
            tuple(Member(f"m{rank}", self._workers(rank), self.pushes_per_round) for rank in range(3)),
            number=self.number, top=self.top, steps_assigned_above=self.steps_assigned_above,
        )  # fmt: skip

    def _workers(self, rank: int) -> tuple[WorkerDevice, ...]:
        names = [f"m{rank}"] if self.number == 1 else [f"m{rank}/worker{number}" for number in range(2)]
        return tuple(WorkerDevice(name, 0.05) for name in names)

    def round_of(self, push: int) -> int:
        """Return the number of the ``push``-th round of a member, from 0."""
        return (push + 1) * self.spacing - 1


@dataclass(slots=True)
class _PushState:
    """A push that was handed to the policy."""

    member: str
    incarnation: int  # of the member; it grows by one when the member joins again
    aggregated: bool = False
    answered: bool = False
    orphaned: bool = False  # its member was lost before the answer


@dataclass(frozen=True, slots=True)
class Changes:
    """What happens to members in addition to their pushes.

    losses  how many times a member is lost and joins again
    ends    whether members finish after different numbers of rounds and then leave on purpose
    slow    whether the first member pushes only when no other member can
    """

    losses: int = 0
    ends: bool = False
    slow: bool = False


class PushSchedule:
    """One run of one policy. ``step`` makes one random move; ``run`` makes all of them and then checks the end."""

    def __init__(
        self, subject: Subject, case: TierCase, seed: int, changes: Changes | None = None,
        policy: SyncPolicy | None = None,
    ) -> None:  # fmt: skip
        """``policy``: one that has come to the first round of ``case``; by default a new one."""
        self._entry: type[SyncPolicy] = subject.entry
        self.case, self._changes = case, changes or Changes()
        self.tier = case.tier()
        self.policy: SyncPolicy = policy or self._entry(self.tier, subject.options)
        self._random = random.Random(seed)
        self.trace: list[object] = []  # all events that the policy was given, and all effects that it returned
        self.rounds_passed_up: dict[int, set[int]] = {}  # by key: rounds whose aggregate went to the next tier
        self.assigned: list[int] = []
        self.aggregated_early = False  # whether a round was aggregated while the push of a member was missing
        self._incarnations = dict.fromkeys(self.tier.names, 0)
        self._since = dict.fromkeys(self.tier.names, 0)  # the first push that is expected of the member
        self._lost: set[str] = set()
        self._left: set[str] = set()
        self._losses = self._changes.losses
        rounds = [self._random.randint(1, ROUNDS) if self._changes.ends else ROUNDS for _ in self.tier.names]
        self._ends = {name: n * case.pushes_per_round for name, n in zip(self.tier.names, rounds, strict=True)}
        self._next: dict[str, list[int]] = {name: [0] * KEYS for name in self.tier.names}
        self._answered: dict[str, list[int]] = {name: [0] * KEYS for name in self.tier.names}
        self._pushes: dict[tuple[int, int], list[_PushState]] = {}  # by key and round
        if case.begin:
            self._begin_at(case.begin, tell=policy is None)

    def run(self) -> PushSchedule:
        """Make all moves, and require that every push was aggregated, and answered unless its member was lost."""
        while self.step():
            pass
        self._check_end()
        return self

    def step(self) -> bool:
        """Make one move. Return whether there was one to make."""
        if self._losses and self._random.random() < 0.04 and len(self._present()) > 1:
            self._losses -= 1
            self._lose(self._random.choice(self._present()))
        elif self._lost and self._random.random() < 0.1:
            self._join(self._random.choice(sorted(self._lost)))
        elif moves := self._moves():
            member, key = self._random.choice(moves)
            self._push(member, key)
        elif ended := self._ended():
            self._leave(ended[0])
        elif self._lost:
            self._join(min(self._lost))
        else:
            return False
        self._check_waits()
        return True

    # ---- moves --------------------------------------------------------------------------------------------------

    def _begin_at(self, round_: int, tell: bool) -> None:
        if tell:
            self.policy.begin_at(round_)
        begin = round_ * self.case.pushes_per_round
        for name in self.tier.names:
            self._set_begin(name, begin)

    def resume_all(self, since: int) -> None:
        """Resume every member with round ``since``, as on a replica that takes over from a failed server."""
        for name in self.tier.names:
            self.policy.resume_member(name, since)
            self._set_begin(name, since)

    def _set_begin(self, member: str, push: int) -> None:
        self._next[member], self._answered[member] = [push] * KEYS, [push] * KEYS
        self._since[member] = push
        self._ends[member] = max(self._ends[member], push + 2)

    def _moves(self) -> list[tuple[str, int]]:
        moves = [
            (name, key) for name in self._present() for key in range(KEYS)
            if self._next[name][key] < min(self._ends[name], min(self._answered[name]) + self.case.pushes_per_round)
        ]  # fmt: skip
        others = [move for move in moves if move[0] != self.tier.names[0]]
        return others if self._changes.slow and others else moves

    def _push(self, member: str, key: int) -> None:
        number = self._next[member][key]
        self._next[member][key] += 1
        now_s = _ROUND_S * self.case.begin + len(self.trace)
        push = Push(member, key, self.case.round_of(number), now_s, self._reports(member, key))
        self._pushes.setdefault((key, push.round), []).append(_PushState(member, self._incarnations[member]))
        self._carry_out(self.policy.on_push(push), push)

    def _reports(self, member: str, key: int) -> dict[str, WorkerReport]:
        if key or not self._entry.needs_reports:
            return {}
        (workers,) = [each.workers for each in self.tier.members if each.name == member]
        return {worker.name: WorkerReport(self._random.uniform(0.005, 0.05), 0.02) for worker in workers}

    def _lose(self, member: str) -> None:
        self._lost.add(member)
        for pushes in self._pushes.values():
            for push in pushes:
                if push.member == member and not push.answered:
                    push.orphaned = True
        self._carry_out(self.policy.on_member_lost(member), f"loss of {member}")

    def _join(self, member: str) -> None:
        since = self.policy.on_member_joined(member)
        require(
            isinstance(since, int) and since >= 0, f"on_member_joined to return a round of {member}, 0 or more",
            repr(since), "return the first round that no key has begun",
        )  # fmt: skip
        self.trace.append((member, since))
        self._lost.discard(member)
        self._incarnations[member] += 1
        if self._incarnations[member] % 2:  # another server of it was further
            since += self.case.pushes_per_round
            self._since[member] = since
            self._carry_out(self.policy.on_member_began(member, since), f"begin of {member}")
        push = next(number for number in range(since + 1) if self.case.round_of(number) >= since)
        self._next[member], self._answered[member] = [push] * KEYS, [push] * KEYS
        self._since[member] = push

    def _leave(self, member: str) -> None:
        self._left.add(member)
        self._carry_out(self.policy.on_members_left([member]), f"leave of {member}")

    def _present(self) -> list[str]:
        return [name for name in self.tier.names if name not in self._lost and name not in self._left]

    def _ended(self) -> list[str]:
        if not self._changes.ends:
            return []
        return [name for name in self._present() if min(self._answered[name]) >= self._ends[name]]

    # ---- effects of the policy -------------------------------------------------------------------------------------

    def _carry_out(self, effects: list[Effect], after: Push | str) -> None:
        self.trace += [after, effects]
        require(isinstance(effects, list), "a list of effects", repr(effects), "return [] where there is nothing to do")
        aggregated: list[_PushState] = []
        for effect in effects:
            if isinstance(effect, Aggregate):
                aggregated += self._aggregate(effect, after)
            elif isinstance(effect, Reply):
                self._reply(effect, after)
            else:
                raise CheckFailed("Aggregate or Reply", repr(effect), "return effects of testbed.policy.events only")
        self._check_holding(aggregated, after)

    def _aggregate(self, effect: Aggregate, after: Push | str) -> list[_PushState]:
        where = f"{self.case.name}, after {_name(after)}"
        shown = f"Aggregate{effect.members} of key {effect.key}, round {effect.round}"
        ranks = [self.tier.names.index(name) for name in effect.members if name in self.tier.names]
        require(
            ranks and len(ranks) == len(effect.members) and ranks == sorted(set(ranks)),
            "an aggregate of members of the tier, each once, in rank order", f"{where}: {shown}",
            "name tier.names in their order, so that the sum does not depend on the order of arrival",
        )  # fmt: skip
        found = []
        for name in effect.members:
            pushes = [push for push in self._pushes.get((effect.key, effect.round), ()) if push.member == name]
            require(
                pushes, "an aggregate of contributions that have arrived",
                f"{where}: {shown}, and {name} has not pushed",
                "wait for the push, or leave the member out",
            )  # fmt: skip
            waiting = [push for push in pushes if not push.aggregated]
            require(
                waiting, "every push aggregated exactly once", f"{where}: {shown} takes {name}'s a second time",
                "forget a round when it is complete",
            )  # fmt: skip
            waiting[0].aggregated = True
            found.append(waiting[0])
        if effect.up:
            self.rounds_passed_up.setdefault(effect.key, set()).add(effect.round)
        self._check_completeness(effect, where, shown)
        return found

    def _check_completeness(self, effect: Aggregate, where: str, shown: str) -> None:
        """Require the contributions of all members where the algorithm declares ``waits``."""
        arrived = {push.member for push in self._pushes[effect.key, effect.round]}
        missing = [name for name in self._expected(effect.round) if name not in arrived]
        self.aggregated_early |= bool(missing)
        require(
            not (self._entry.waits and missing), "waits = True: an aggregate only when all members have pushed",
            f"{where}: {shown} without {', '.join(missing)}", "wait for all, or declare waits = False",
        )  # fmt: skip

    def _expected(self, round_: int) -> list[str]:
        """Return the members that take part in a round."""
        return [name for name in self._present() if self.case.round_of(self._since[name]) <= round_]

    def _reply(self, effect: Reply, after: Push | str) -> None:
        where, shown = f"{self.case.name}, after {_name(after)}", f"Reply to {effect.members} of key {effect.key}"
        require(
            len(effect.rounds) == len(effect.members), "as many rounds as members in a reply",
            f"{where}: {shown} with rounds {effect.rounds}", "give the round of each member's own push",
        )  # fmt: skip
        for name, round_ in zip(effect.members, effect.rounds, strict=True):
            self._answer(name, effect.key, round_, f"{where}: {shown}, round {round_}")
        self._check_steps(effect, f"{where}: {shown}")
        require(
            self.case.top or not effect.last, "last only at the top tier", f"{where}: {shown} with last=True",
            "set last only where tier.top is true",
        )  # fmt: skip

    def _answer(self, name: str, key: int, round_: int, shown: str) -> None:
        pushes = [push for push in self._pushes.get((key, round_), ()) if push.member == name]
        require(
            pushes, "a reply to a push that has arrived", shown, "reply only to members that have pushed that round"
        )
        push = pushes[-1]
        require(
            name not in self._lost, "no reply to a member that is lost", shown,
            "leave lost members out of replies; their contribution still counts",
        )  # fmt: skip
        require(not push.answered, "every push answered exactly once", f"{shown}: {name} a second time", "reply once")
        require(
            push.aggregated, "no reply before the aggregate with the member's contribution", shown,
            "put Aggregate before Reply in the list of effects",
        )  # fmt: skip
        push.answered = True
        self._answered[name][key] += not push.orphaned  # that one is ignored by a member that has joined again

    def _check_steps(self, effect: Reply, shown: str) -> None:
        if not effect.steps:
            return
        workers = {worker.name for member in self.tier.members for worker in member.workers}
        require(
            self._entry.assigns_steps, "steps as declared: assigns_steps = False",
            f"{shown} assigns {dict(effect.steps)}",
            "declare assigns_steps = True, or return the steps from local_steps alone",
        )  # fmt: skip
        require(
            not self.case.steps_assigned_above, "no assignment where tier.steps_assigned_above",
            f"{shown} assigns steps",
            "leave steps empty there",
        )  # fmt: skip
        require(
            all(name in workers and isinstance(steps, int) and steps >= 1 for name, steps in effect.steps.items()),
            "at least 1 local step, for workers at or below the members", f"{shown} assigns {dict(effect.steps)}",
            "name workers of tier.members, with whole numbers from 1",
        )  # fmt: skip
        self.assigned += effect.steps.values()

    # ---- waits --------------------------------------------------------------------------------------------------

    def _check_holding(self, aggregated: Sequence[_PushState], after: Push | str) -> None:
        held = [push.member for push in aggregated if not push.answered and not push.orphaned]
        require(
            not held or self._entry.holds, "holds = False: each push is answered with its aggregate",
            f"{self.case.name}, after {_name(after)}: no reply to {', '.join(held)}",
            "reply together with the aggregate, or declare holds = True",
        )  # fmt: skip

    def _check_waits(self) -> None:
        for (key, round_), pushes in self._pushes.items():
            waiting = [push.member for push in pushes if not push.answered and not push.orphaned]
            named = self.policy.waiting_for(key, round_)
            shown = (
                f"{self.case.name}: waiting_for({key}, {round_}) is {named}; {', '.join(waiting) or 'no member'} waits"
            )
            if self._entry.waits:
                self._check_missing(key, round_, named, shown)
            elif waiting:
                require(
                    named and all(self._is_behind(name, key, round_) for name in named),
                    "waiting_for to name the members that are behind", shown,
                    "name those whose pushes would release it",
                )  # fmt: skip

    def _check_missing(self, key: int, round_: int, named: Sequence[str], shown: str) -> None:
        pushes = self._pushes[key, round_]
        if all(push.orphaned for push in pushes):
            return  # no present member waits
        pushed = {(push.member, push.incarnation) for push in pushes}
        missing = tuple(name for name in self._expected(round_) if (name, self._incarnations[name]) not in pushed)
        require(
            tuple(named) == missing, f"waiting_for to name exactly the missing members, here {missing}", shown,
            "return the members, in rank order, whose push of that key and round has not arrived",
        )  # fmt: skip

    def _is_behind(self, name: str, key: int, round_: int) -> bool:
        """Return whether a member has finished at most as many rounds as the one whose push of ``round_`` waits."""
        count = self.case.pushes_per_round
        finished = self._next[name][key] // count if name in self._present() else round_ + 1
        return finished * self.case.spacing <= round_ // count

    def _check_end(self) -> None:
        for (key, round_), pushes in sorted(self._pushes.items()):
            for push in pushes:
                shown = f"{self.case.name}: {push.member}'s push of key {key}, round {round_}"
                lost = push.orphaned and not self._entry.waits
                require(
                    push.aggregated or lost, "every push aggregated exactly once", f"{shown} was never aggregated",
                    "aggregate it when its round is complete; the loss of a member completes rounds, too",
                )  # fmt: skip
                require(
                    push.answered or push.orphaned, "every push answered", f"{shown} was never answered",
                    "reply to every member that has pushed; on_member_lost and on_members_left release who waits",
                )  # fmt: skip
        for name in self._present():
            require(
                min(self._next[name]) >= self._ends[name] or self._changes.losses, "every member comes to its end",
                f"{self.case.name}: {name} stopped at push {min(self._next[name])}", "answer every push",
            )  # fmt: skip


def _name(after: Push | str) -> str:
    return after if isinstance(after, str) else f"{after.member}'s push of key {after.key}, round {after.round}"
