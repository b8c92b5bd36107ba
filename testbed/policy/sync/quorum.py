"""Quorum: a round closes with K of n contributions, after a grace window, so stragglers delay nobody.

These are DiLoCo's outer rounds without its barrier, as in Decoupled DiLoCo (Douillard et al., 2026, arXiv 2604.21428):
once a minimum quorum is there and a grace window has passed, the syncer merges the contributions that have arrived,
weighted by tokens. With gradients of one step, this is the classic scheme of backup workers (Chen et al., Revisiting
distributed synchronous SGD, 2016).

A round opens when the previous round closes. It closes at once when the contributions of all members are there. With
``quorum`` contributions it waits ``grace_s`` longer, or as long as waiting pays (``adaptive``), and closes. A later
contribution counts for the next round, or is dropped; its member goes on with the newest values. The weighted mean of
the contributions of a round stands for all members. A contribution counts as arrived when its first key arrives. Its
other keys are combined among the same members, so that no key's round waits for another key's.

The paper's rule for the adaptive window was not available. The rule here: wait for one more member as long as the
round's contributions per second do not fall. A member's next contribution is expected when the median duration of its
last three has passed since its last answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any, ClassVar

from testbed.axes import option
from testbed.policy.events import Aggregate, Alarm, Contribution, Discard, Effect, Push, Reply
from testbed.policy.sync.base import WEIGHTS, SyncPolicy, Tier
from testbed.preset import Preset

NEXT = "next"
DROP = "drop"
RECENT = 3  # contributions of a member whose median tells when the next one is expected


class Quorum(SyncPolicy):
    """Synchronous rounds of outer gradients that close without late members."""

    contribution: ClassVar[Contribution] = Contribution.DELTA
    waits: ClassVar[bool] = False
    holds: ClassVar[bool] = True
    tiers: ClassVar[tuple[int, ...]] = (2,)
    pauses: ClassVar[bool] = False
    partner: ClassVar[str] = "diloco"
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="quorum",
            summary="as diloco, but an outer step waits for two of the data centres, and for others while that pays",
            source="Douillard et al., 2026",
            settings={
                "sync": {
                    "h": 10,
                    "outer_learning_rate": "0.7",
                    "outer_momentum": "0.6",
                    "quorum": 2,
                    "adaptive": True,
                    "weights": "token",
                }
            },
        ),
    )

    @dataclass(frozen=True, slots=True)
    class Options:
        """``quorum`` and what follows say when a round closes; the others are DiLoCo's."""

        h: int = option(50, "inner steps between two outer steps", min=1, max=10**6)
        outer_learning_rate: float = option(0.7, "step size of the outer optimizer", above=0, max=100)
        outer_momentum: float = option(0.9, "Nesterov momentum of the outer optimizer", min=0, max=0.9999)
        weights: str = option("worker", **WEIGHTS)
        quorum: int = option(
            2, "contributions that a round needs to close; if fewer members take part, all of theirs", min=1
        )
        grace_s: float = option(0.0, "how much longer a round waits once it has its quorum", unit="s")
        adaptive: bool = option(
            False, "wait for one more contribution as long as this does not lower contributions per second"
        )
        stragglers: str = option(
            NEXT,
            "what becomes of a contribution after its round. next: it counts for the open round; drop: it is discarded",
            choices=(NEXT, DROP),
        )

        def problems(self) -> Iterator[tuple[str, str, str]]:
            """Yield a problem if the grace window is both fixed and adaptive."""
            if self.adaptive and self.grace_s:
                yield "grace_s", "an adaptive window has no fixed length", "remove it, or write 'adaptive: false'"

    def __init__(self, tier: Tier, options: Options) -> None:
        self._members = tier.names
        self._options = options
        self._present = set(tier.names)
        self._left: set[str] = set()
        self._closed = 0  # rounds
        self._opened_s = 0.0  # when the open round began, because the previous one closed
        self._closes_s: float | None = None  # when the grace window ends, if it has begun
        # A member numbers its own rounds; in the following, "its round" is that number.
        self._open: dict[str, int] = {}  # by member that has contributed to the open round: its round
        self._latest: dict[str, int] = {}  # by member: its latest round of which a key has arrived
        self._dropped: dict[str, int] = {}  # by member: its round whose contribution is dropped
        self._rounds: dict[str, dict[str, int]] = {}  # by member: the last closed round with it, like ``_open``
        self._arrived: dict[int, dict[str, int]] = {}  # by key, then by member whose push waits: its round
        self._answered: dict[str, tuple[int, float]] = {}  # by member: rounds closed when it was answered, and the time
        self._took_s: dict[str, deque[float]] = {}  # by member: seconds from answer to push, of its last contributions

    @classmethod
    def local_steps(cls, options: Options, round_: int) -> int:
        return options.h

    @classmethod
    def outer_optimizer(cls, options: Options) -> tuple[str, dict[str, Any]]:
        return "nesterov", {"learning_rate": options.outer_learning_rate, "momentum": options.outer_momentum}

    @classmethod
    def slack_s(cls, options: Options) -> float:
        return options.grace_s

    def on_push(self, push: Push) -> list[Effect]:
        member = push.member
        self._arrived.setdefault(push.key, {})[member] = push.round
        if self._latest.get(member) == push.round:  # a further key of a known contribution
            return self._complete([push.key])
        self._latest[member] = push.round
        closed, answered_s = self._answered.get(member, (0, 0.0))
        if closed < self._closed and self._options.stragglers == DROP:
            self._dropped[member] = push.round
            self._answered[member] = (self._closed, push.now_s)
            return self._complete([push.key])
        self._took_s.setdefault(member, deque(maxlen=RECENT)).append(push.now_s - answered_s)
        self._open[member] = push.round
        return self.look(push.now_s, push.key)

    def on_alarm(self, key: int, number: int, now_s: float) -> list[Effect]:
        is_due = self._closes_s is not None and now_s >= self._closes_s
        return self._close(now_s) if number == self._closed and is_due else []

    def on_members_left(self, members: Collection[str]) -> list[Effect]:
        self._left.update(members)
        return self.look(self._opened_s)

    def regroup(self, first: Mapping[str, int]) -> list[Effect]:
        lost = self._present.difference(first)
        joined = set(first).difference(self._present)
        self._present = {*first}
        self._left.difference_update(joined)
        self._answered.update(dict.fromkeys(joined, (self._closed, self._opened_s)))
        dropped: list[Effect] = []
        for member in sorted(lost):
            self._rounds.pop(member, {}).pop(member, None)
            for of_member in (self._open, self._latest, self._dropped, self._took_s):
                of_member.pop(member, None)
            for key, arrived in self._arrived.items():
                if member in arrived:
                    dropped.append(Discard(key, arrived.pop(member), member))
        return dropped + self.look(self._opened_s) + self._complete([*self._arrived])

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        arrived = self._arrived.get(key, {})
        under_way = {name for name, numbers in self._rounds.items() if numbers.get(name) == self._latest.get(name)}
        named = under_way.union(self._missing()).difference(arrived, self._left)
        return tuple(name for name in self._members if name in named) if arrived else ()

    def look(self, now_s: float, key: int = 0) -> list[Effect]:
        """If the open round has its quorum, close it or begin its grace window."""
        count = len(self._open)
        missing = self._missing()
        if count == 0 or count < min(self._options.quorum, count + len(missing)):
            return []
        before_s = self._closes_s
        if self._options.adaptive:
            self._closes_s = self.waits_until_s(now_s)
        elif before_s is None:
            self._closes_s = now_s + self._options.grace_s
        if not missing or self._closes_s is None or self._closes_s <= now_s:
            return self._close(now_s)
        is_set = before_s is not None and not self._options.adaptive
        return [] if is_set else [Alarm(key, self._closed, self._closes_s)]

    def _missing(self) -> list[str]:
        there = self._present - self._left - self.elsewhere()
        return [name for name in self._members if name in there and name not in self._open]

    def elsewhere(self) -> set[str]:
        """Return the members that push nothing here because they wait for an answer elsewhere."""
        return set()

    def waits_until_s(self, now_s: float) -> float:
        """Return until when waiting for missing members pays, by how long their last contributions took."""
        count = len(self._open)
        expected = [
            self._answered.get(name, (0, 0.0))[1] + median_low(self._took_s[name])
            for name in self._missing()
            if name in self._took_s
        ]
        until_s = now_s
        for more, arrival_s in enumerate(sorted(each for each in expected if each > now_s), start=1):
            # (count + more) / (arrival_s - opened_s) against count / (now_s - opened_s)
            if (count + more) * (now_s - self._opened_s) >= count * (arrival_s - self._opened_s):
                until_s = arrival_s
        return until_s

    def _close(self, now_s: float) -> list[Effect]:
        """Close the round: combine each key now if all its contributions are here, otherwise as soon as they are."""
        numbers = {name: self._open[name] for name in self._members if name in self._open}
        self._open.clear()
        self._closed += 1
        self._opened_s = now_s
        self._closes_s = None
        self._rounds.update(dict.fromkeys(numbers, numbers))
        self._answered.update(dict.fromkeys(numbers, (self._closed, now_s)))
        return self._complete([*self._arrived])

    def _complete(self, keys: Sequence[int]) -> list[Effect]:
        """Return the effects for pushes of ``keys`` that are dropped, or that complete a key of a closed round."""
        effects: list[Effect] = []
        for key in keys:
            arrived = self._arrived[key]
            for member in [name for name in self._members if name in arrived]:
                round_ = arrived.get(member)
                numbers = self._rounds.get(member, {})
                if round_ is None:
                    continue  # answered with a member before it
                if self._dropped.get(member) == round_:
                    del arrived[member]
                    effects += [Discard(key, round_, member), Reply(key, (round_,), (member,))]
                elif numbers.get(member) == round_ and all(arrived.get(name) == each for name, each in numbers.items()):
                    members, rounds = zip(*numbers.items(), strict=True)
                    for name in members:
                        del arrived[name]
                    effects += [Aggregate(key, max(rounds), members, rounds=rounds), Reply(key, rounds, members)]
        return effects
