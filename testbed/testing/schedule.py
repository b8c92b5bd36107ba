"""Drives a synchronisation policy as a server does, by a random schedule, and checks every effect against the contract.

A *case* describes the tier that the policy serves. The seed of a schedule decides which member pushes, is lost, joins
or leaves next. There is no clock, so pushes may arrive in any order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from testbed.policy.events import Aggregate, Alarm, Discard, Effect, Push, Reply, WorkerReport
from testbed.policy.sync.base import Member, SyncPolicy, Tier, WorkerDevice
from testbed.testing.requirement import Broken, require
from testbed.testing.subject import Subject

KEYS = 2
ROUNDS = 7  # rounds that every member pushes
_ROUND_S = 100.0  # time from round to round; more than a round has events, which are a second apart


@dataclass(frozen=True, slots=True)
class TierCase:
    """A tier on which a policy is checked, and the events of its members.

    number            number of the tier, 1 or 2
    top               whether this is the top tier, whose aggregates go no further
    spacing           LAN rounds per round that crosses the WAN; the policy sees only one in this many rounds
    pushes_per_round  pushes of each member in a round; more than 1 if its workers do not wait for each other
    begin             the first round; above 0 for a resumed run
    losses            number of times that a member is lost and joins again
    ends              whether members finish after different numbers of rounds and then leave on purpose
    slow              whether the first member pushes only when no other member can
    """

    name: str
    number: int
    top: bool
    spacing: int = 1
    pushes_per_round: int = 1
    begin: int = 0
    steps_assigned_above: bool = False
    losses: int = 0
    ends: bool = False
    slow: bool = False

    def tier(self) -> Tier:
        """Return the tier, with three members; on tier 2, each has two workers."""
        members = tuple(Member(f"m{rank}", self._workers(rank), self.pushes_per_round) for rank in range(3))
        return Tier(members, self.number, self.top, self.steps_assigned_above)

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
    incarnation: int  # of the member; grows by one when the member joins again
    aggregated: bool = False
    answered: bool = False
    orphaned: bool = False  # the member was lost before the answer

    @property
    def waits(self) -> bool:
        """Whether the member has not been lost and waits for the answer."""
        return not self.answered and not self.orphaned


class PushSchedule:
    """One run of one policy. ``step`` makes one random move; ``run`` makes all of them and then checks the end."""

    def __init__(self, subject: Subject, case: TierCase, seed: int, policy: SyncPolicy | None = None) -> None:
        """``policy`` is a policy that has come to the first round of ``case``; by default a new one."""
        self._entry: type[SyncPolicy] = subject.entry
        self.case = case
        self.tier = case.tier()
        self.policy: SyncPolicy = policy or self._entry(self.tier, subject.options)
        self._random = random.Random(seed)
        self.trace: list[object] = []  # all events that the policy got, and all effects that it returned
        self.rounds_passed_up: dict[int, set[int]] = {}  # by key, the rounds whose aggregate went to the next tier
        self.assigned: list[int] = []
        self.aggregated_early = False  # whether a round was aggregated while the push of a member was missing
        names = self.tier.names
        self._incarnations = dict.fromkeys(names, 0)
        self._since = dict.fromkeys(names, 0)  # the first push expected from each member
        self._lost: set[str] = set()
        self._left: set[str] = set()
        self._losses = case.losses
        rounds = [self._random.randint(1, ROUNDS) if case.ends else ROUNDS for _ in names]
        self._ends = {name: n * case.pushes_per_round for name, n in zip(names, rounds, strict=True)}
        self._next: dict[str, list[int]] = {name: [0] * KEYS for name in names}
        self._answered: dict[str, list[int]] = {name: [0] * KEYS for name in names}
        self._pushes: dict[tuple[int, int], list[_PushState]] = {}  # by key and round
        self._alarms: list[Alarm] = []  # alarms that have not rung yet
        self._after = ""  # the last event that the policy got, for messages
        if case.begin:
            for name in names:
                self._set_begin(name, case.begin * case.pushes_per_round)
            if policy is None:
                self.policy.regroup(self._first_rounds())

    def run(self) -> PushSchedule:
        """Make all moves. Require that every push was aggregated, and answered unless its member was lost."""
        while self.step():
            pass
        self._check_end()
        return self

    def step(self) -> bool:
        """Make one move. Return ``False`` if no move is left."""
        if self._losses and self._random.random() < 0.04 and len(self._present()) > 1:
            self._losses -= 1
            self._lose(self._random.choice(self._present()))
        elif self._lost and self._random.random() < 0.1:
            self._join(self._random.choice(sorted(self._lost)))
        elif self._alarms and self._random.random() < 0.3:
            self._ring()
        elif moves := self._moves():
            self._push(*self._random.choice(moves))
        elif self._alarms:
            self._ring()
        elif ended := self._ended():
            self._left.add(ended[0])
            self._carry_out(self.policy.on_members_left([ended[0]]), f"leave of {ended[0]}")
        elif self._lost:
            self._join(min(self._lost))
        else:
            return False
        self._check_waits()
        return True

    # ---- moves --------------------------------------------------------------------------------------------------

    def _set_begin(self, member: str, push: int) -> None:
        self._next[member] = [push] * KEYS
        self._answered[member] = [push] * KEYS
        self._since[member] = push
        self._ends[member] = max(self._ends[member], push + 2)

    def _moves(self) -> list[tuple[str, int]]:
        moves = []
        for name in self._present():
            stop = min(self._ends[name], min(self._answered[name]) + self.case.pushes_per_round)
            moves += [(name, key) for key in range(KEYS) if self._next[name][key] < stop]
        others = [move for move in moves if move[0] != self.tier.names[0]]
        return others if self.case.slow and others else moves

    def _push(self, member: str, key: int) -> None:
        round_ = self.case.round_of(self._next[member][key])
        self._next[member][key] += 1
        push = Push(member, key, round_, _ROUND_S * self.case.begin + len(self.trace), self._reports(member, key))
        self._pushes.setdefault((key, round_), []).append(_PushState(member, self._incarnations[member]))
        self._carry_out(self.policy.on_push(push), push)

    def _ring(self) -> None:
        alarm = self._alarms.pop(0)
        effects = self.policy.on_alarm(alarm.key, alarm.number, max(alarm.at_s, float(len(self.trace))))
        self._carry_out(effects, f"the alarm of key {alarm.key}")

    def _reports(self, member: str, key: int) -> dict[str, WorkerReport]:
        if key or not self._entry.needs_reports:
            return {}
        (workers,) = [each.workers for each in self.tier.members if each.name == member]
        return {worker.name: WorkerReport(self._random.uniform(0.005, 0.05), 0.02) for worker in workers}

    def _lose(self, member: str) -> None:
        self._lost.add(member)
        for push in [push for pushes in self._pushes.values() for push in pushes]:
            push.orphaned |= push.member == member and not push.answered
        self._regroup(f"loss of {member}")

    def _join(self, member: str) -> None:
        """Let a member join with the first round that no member has begun."""
        count = self.case.pushes_per_round
        begun = max((max(self._next[name]) for name in self.tier.names if name not in self._lost), default=0)
        self._lost.discard(member)
        self._incarnations[member] += 1
        push = (begun + count - 1) // count * count
        self._next[member] = [push] * KEYS
        self._answered[member] = [push] * KEYS
        self._since[member] = push
        self.trace.append((member, push))
        self._regroup(f"join of {member}")

    def _regroup(self, why: str) -> None:
        """Tell the policy which members take part. If members wait for all, they push incomplete rounds again."""
        if self._entry.waits:
            for where, pushes in self._pushes.items():
                self._pushes[where] = [push for push in pushes if push.aggregated]
            for name in self._present():
                self._next[name] = list(self._answered[name])
        self._carry_out(self.policy.regroup(self._first_rounds()), why)

    def _first_rounds(self) -> dict[str, int]:
        """Return the first round of each member that takes part."""
        return {name: self._first_round(name) for name in self.tier.names if name not in self._lost}

    def _first_round(self, name: str) -> int:
        since = self._since[name]
        if self.case.pushes_per_round > 1:
            return since // self.case.pushes_per_round
        return self.case.round_of(since) if since else 0

    def _present(self) -> list[str]:
        return [name for name in self.tier.names if name not in self._lost and name not in self._left]

    def _ended(self) -> list[str]:
        if not self.case.ends and self._entry.pauses:
            return []
        return [name for name in self._present() if min(self._answered[name]) >= self._ends[name]]

    # ---- effects of the policy -------------------------------------------------------------------------------------

    def _carry_out(self, effects: list[Effect], event: Push | str) -> None:
        self.trace += [event, effects]
        if isinstance(event, Push):
            self._after = f"{event.member}'s push of key {event.key}, round {event.round}"
        else:
            self._after = event
        require(isinstance(effects, list), f"{effects!r} in place of a list of effects", "return [] to do nothing")
        aggregated: list[_PushState] = []
        for effect in effects:
            if isinstance(effect, Aggregate):
                aggregated += self._aggregate(effect)
            elif isinstance(effect, Reply):
                self._reply(effect)
            elif isinstance(effect, Discard):
                self._take(effect.member, effect.key, effect.round, repr(effect))
            elif isinstance(effect, Alarm):
                self._alarms.append(effect)
            else:
                raise Broken(f"{effect!r} is not an effect", "return effects of testbed.policy.events")
        held = [push.member for push in aggregated if push.waits]
        answered = not held or self._entry.holds
        self._require(answered, f"no reply to {held} with their aggregate", "reply, or declare holds = True")

    def _require(self, condition: object, happened: str, cure: str) -> None:
        """Require ``condition`` of the effects that the policy returned for its last event."""
        require(condition, f"{self.case.name}, after {self._after}: {happened}", cure)

    def _aggregate(self, effect: Aggregate) -> list[_PushState]:
        shown = f"Aggregate{effect.members} of key {effect.key}, round {effect.round}"
        in_rank_order = [name for name in self.tier.names if name in effect.members]
        ordered = effect.members and list(effect.members) == in_rank_order
        self._require(ordered, f"{shown} is not in rank order", "name members of tier.names once, in their order")
        rounds = effect.rounds or (effect.round,) * len(effect.members)
        paired = len(rounds) == len(effect.members) and effect.round in rounds
        self._require(paired, f"{shown} with rounds {rounds}", "give the round of each member's push, and one of them")
        found = [
            self._take(name, effect.key, round_, shown) for name, round_ in zip(effect.members, rounds, strict=True)
        ]
        arrived = self._pushes.get((effect.key, effect.round), [])
        if effect.up:
            self.rounds_passed_up.setdefault(effect.key, set()).add(effect.round)
        missing = set(self._expected(effect.round)) - {push.member for push in arrived}
        self.aggregated_early |= bool(missing)
        complete = not (self._entry.waits and missing)
        self._require(complete, f"{shown} without {sorted(missing)}", "wait for all, or declare waits = False")
        return found

    def _take(self, name: str, key: int, round_: int, shown: str) -> _PushState:
        """Note that a push was used: it is part of an aggregate, or was discarded."""
        pushes = [push for push in self._pushes.get((key, round_), []) if push.member == name]
        self._require(pushes, f"{shown}, but {name} has not pushed", "wait for the push, or leave the member out")
        waiting = [push for push in pushes if not push.aggregated]
        self._require(waiting, f"{shown} takes {name}'s a second time", "forget a round when it is complete")
        waiting[0].aggregated = True
        return waiting[0]

    def _expected(self, round_: int) -> list[str]:
        """Return the members that take part in a round."""
        return [name for name in self._present() if self.case.round_of(self._since[name]) <= round_]

    def _reply(self, effect: Reply) -> None:
        shown = f"Reply to {effect.members} of key {effect.key}, rounds {effect.rounds},"
        paired = len(effect.rounds) == len(effect.members)
        self._require(paired, f"{shown} does not have one round per member", "give the round of each member's own push")
        for name, round_ in zip(effect.members, effect.rounds, strict=True):
            self._answer(name, effect.key, round_)
        self._require(self.case.top or not effect.last, f"{shown} is the last", "set last only where tier.top is true")
        if effect.steps:
            self._check_steps(effect, f"{shown} assigns {dict(effect.steps)}")

    def _answer(self, name: str, key: int, round_: int) -> None:
        shown = f"a reply to {name} of key {key}, round {round_},"
        pushes = [push for push in self._pushes.get((key, round_), ()) if push.member == name]
        self._require(pushes, f"{shown} which it has not pushed", "reply only to members that have pushed that round")
        push = pushes[-1]
        self._require(
            name not in self._lost, f"{shown} which is lost", "leave lost members out; their push still counts"
        )
        self._require(not push.answered, f"{shown} a second time", "reply once")
        self._require(push.aggregated, f"{shown} before the aggregate with its push", "put Aggregate before Reply")
        push.answered = True
        self._answered[name][key] += not push.orphaned  # a member that has joined again ignores replies to old pushes

    def _check_steps(self, effect: Reply, shown: str) -> None:
        workers = {worker.name for member in self.tier.members for worker in member.workers}
        declare = "declare assigns_steps = True, or return the steps from local_steps alone"
        self._require(self._entry.assigns_steps, f"{shown}, with assigns_steps = False", declare)
        above = self.case.steps_assigned_above
        self._require(not above, f"{shown}, where tier.steps_assigned_above", "leave steps empty there")
        whole = all(name in workers and isinstance(count, int) and count >= 1 for name, count in effect.steps.items())
        self._require(whole, shown, "name workers of tier.members, with whole numbers from 1")
        self.assigned += effect.steps.values()

    # ---- waits --------------------------------------------------------------------------------------------------

    def _check_waits(self) -> None:
        for (key, round_), pushes in self._pushes.items():
            waiting = [push.member for push in pushes if push.waits]
            named = tuple(self.policy.waiting_for(key, round_))
            if self._entry.waits and not all(push.orphaned for push in pushes):
                pushed = {(push.member, push.incarnation) for push in pushes}
                expected = self._expected(round_)
                right = tuple(name for name in expected if (name, self._incarnations[name]) not in pushed)
                cure = f"return the members, in rank order, whose push has not arrived, here {right}"
                self._require(named == right, f"waiting_for({key}, {round_}) is {named}", cure)
            elif waiting and not self._entry.waits:
                behind = named and all(
                    self._is_behind(name, key, round_) or not self._has_pushed(name, key) for name in named
                )
                shown = f"waiting_for({key}, {round_}) is {named}, and {', '.join(waiting)} waits"
                self._require(behind, shown, "name the members that are behind, whose pushes would release it")

    def _has_pushed(self, name: str, key: int) -> bool:
        """Return whether a push of the member for this key waits for its answer."""
        return any(
            push.member == name and push.waits
            for (other, _), pushes in self._pushes.items()
            for push in pushes
            if other == key
        )

    def _is_behind(self, name: str, key: int, round_: int) -> bool:
        """Return whether a member has finished no more rounds than the member whose push of ``round_`` waits."""
        count = self.case.pushes_per_round
        finished = self._next[name][key] // count if name in self._present() else round_ + 1
        return finished * self.case.spacing <= round_ // count

    def _check_end(self) -> None:
        for (key, round_), pushes in sorted(self._pushes.items()):
            for push in pushes:
                shown = f"{self.case.name}: {push.member}'s push of key {key}, round {round_}"
                aggregated = push.aggregated or push.orphaned
                cure = "aggregate it when its round is complete"
                require(aggregated, f"{shown} was never aggregated", cure)
                cure = "reply to every member that has pushed; regroup and on_members_left release members that wait"
                require(not push.waits, f"{shown} was never answered", cure)
        for name in self._present():
            stopped = min(self._next[name])
            ended = stopped >= self._ends[name] or self.case.losses
            require(ended, f"{self.case.name}: {name} stopped at push {stopped}", "answer every push")
