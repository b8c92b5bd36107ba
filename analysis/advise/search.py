"""Estimates within a budget how much time, bytes or money each candidate needs to reach the goal.

1. *Pace.* Simulate a few rounds of every candidate, with payload sizes instead of tensors. Where links or devices
   change over time, do so from later starting times, too. If the budget is too small for one round of each candidate,
   some candidates are simulated for as long as they need, and the others not at all.
2. *Learning.* Train once for each group of candidates that learn alike (one "mathematics"), the most promising group
   first. Once a candidate has reached the goal, the others are trained only as long as they could still beat it.
3. *Tuning*, on request: search a setting of the optimizer, with the same number of runs for each mathematics.
4. *Combinations.* Combine the best candidates with a technique of another axis: a codec, an order, an overlay. This
   stage is skipped while the pace of some candidate is unknown.
5. *Finalists.* Simulate every round up to the goal for candidates whose time to it is uncertain, the best first. Train
   those that may be as good as the best with other seeds. The mean of the best over its seeds may be worse than its
   first seed was; so others are then trained further.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from analysis.advise import estimate, mathematics
from analysis.advise.budget import Budget
from analysis.advise.candidates import Candidate, rounds_for
from analysis.advise.estimate import Estimate, Known, Reached
from analysis.advise.observation import DIVERGED, DONE, FAILED, STOPPED, UNLIMITED, Observation
from analysis.advise.pace import Pace, rounds_to_sample, sampled, varies
from analysis.advise.pool import Task, simulate_all
from analysis.advise.question import Question, Tell
from analysis.advise.tuning import Tuned, tune
from testbed.numbers import counted
from testbed.plan.identity import identity_of
from testbed.plan.model import Plan
from testbed.simulation.prediction_error import error_of, widest_error

PACE_STARTS = 3
PROMISING = 2.5
"""A candidate is promising if its value per training sample is at most this multiple of the lowest one. Only the rounds
of promising candidates are also simulated from later starting times."""
MORE_STEPS = 3.0
"""A technique may make at most this multiple of the training steps of the scenario's own technique."""
MARGIN = 1.5
"""A candidate is trained until it has taken this multiple of the best one's value. Seeds make as large a difference."""
SURE = 0.005
"""If the relative error of the time to the goal is at most this, no further rounds are simulated."""
SEEDS = 3
FINALISTS = 6
COMBINED = 2
"""How many of the best candidates are combined with techniques of other axes."""

# the share of the budget at which each stage ends
PACE_SHARE = 0.33
MISSING_PACES_SHARE = 0.5
PACE_ALONE_SHARE = 0.7
MISSING_PACES_ALONE_SHARE = 0.9
"""The ``…_ALONE_…`` shares are for a question without a target: nothing is trained, only the paces are measured."""
LEARNING_SHARE = 0.63
TUNED_LEARNING_SHARE = 0.45
"""Replaces ``LEARNING_SHARE`` if there is tuning, which then has the budget between the two."""
COMBINED_SHARE = 0.72
FINALISTS_SHARE = 0.8
FURTHER_SHARE = 0.88
ENDS_SHARE = 0.93


@dataclass(slots=True)
class Search:
    """Finds out about candidates.

    known      the findings for each candidate, by name; the scenario's own technique is first
    simulated  the number of simulations so far
    ends       final accuracy by candidate name, after as many steps as the scenario's own technique makes; only with
               ``question.points``, and only for the scenario's own technique and the best ones
    tuned      the results of tuning, by candidate name
    """

    question: Question
    budget: Budget
    tell: Tell
    known: dict[str, Known] = field(default_factory=dict)
    simulated: int = 0
    ends: dict[str, float] = field(default_factory=dict)
    tuned: dict[str, Tuned] = field(default_factory=dict)

    def run(self, candidates: Iterable[Candidate]) -> None:
        if self.question.target is None:
            self._find_paces(candidates, PACE_ALONE_SHARE)
            self._find_missing_paces(MISSING_PACES_ALONE_SHARE)
            return
        self._find_paces(candidates, PACE_SHARE)
        self._find_missing_paces(MISSING_PACES_SHARE)
        tried = {identity_of(known.candidate.plan) for known in self.known.values()}  # as they are, before tuning
        learning = LEARNING_SHARE if self.question.tune is None else TUNED_LEARNING_SHARE
        self._learn(1.0, learning)
        self._learn(MORE_STEPS, learning)
        if self.question.tune is not None:
            self.tuned = tune(self, self.question.tune, LEARNING_SHARE)
        tried |= {identity_of(known.candidate.plan) for known in self.known.values()}
        if not self._without_pace() and not any(map(self.is_unfollowed, self.paced)):
            self._combine(tried)
        self._look_closer()
        self._learn(1.0, FURTHER_SHARE)
        if self.question.points is not None:
            self._follow_to_the_end()

    def _combine(self, tried: Collection[str]) -> None:
        made = self.question.combined([known.candidate for known in self.best()[:COMBINED]])
        combined = [candidate for candidate in made if identity_of(candidate.plan) not in tried]
        if combined:
            self._find_paces(combined, COMBINED_SHARE)
            self._learn(1.0, COMBINED_SHARE)

    @property
    def paced(self) -> list[Known]:
        return [known for known in self.known.values() if known.pace is not None]

    def at_goal(self) -> dict[str, list[Reached]]:
        """Return, by name, what each candidate took to reach the goal: one entry for each of its seeds.

        A candidate that never reached the goal is left out. If only some seeds reached it, the entry of a seed that did
        not is what all of its rounds took, a lower bound. Without a goal, the entry is what one training sample takes.
        """
        target = self.question.target
        if target is None:
            return {known.candidate.name: [self._of_a_sample(known)] for known in self.paced}
        found: dict[str, list[Reached]] = {}
        for known in self.paced:
            reached = estimate.reached(known, target)
            if reached:
                found[known.candidate.name] = [*reached.values(), *estimate.missed(known, reached)]
        return found

    def estimates(self) -> dict[str, Estimate]:
        return estimate.estimates(self.known, self.at_goal(), self.question.value, self.seed)

    @property
    def seed(self) -> int:
        return next(iter(self.known.values())).candidate.plan.seed

    def _of_a_sample(self, known: Known) -> Reached:
        """Return the rounds, time, bytes and money that one training sample takes: means over the observed rounds."""
        assert known.pace is not None
        per_round = known.pace.samples
        each_bytes = float(known.pace.sizes_bytes().mean())
        return estimate.taken(known, 1 / per_round, known.pace.round_s / per_round, each_bytes / per_round)

    # ---- pace -------------------------------------------------------------------------------------------------------

    def _find_paces(self, candidates: Iterable[Candidate], share: float) -> None:
        added = {candidate.name: self._unknown(candidate) for candidate in candidates}
        self.known |= added
        self.tell(f"looking at some rounds of {counted(len(added), 'technique')}")
        for task, seen in self.simulate(self._samples([(name, 0.0) for name in added], share), share):
            self._take_pace(self.known[task.key[0]], seen)
        later = [(name, start_s) for name, known in added.items() for start_s in self._starts_s(known)]
        for late, seen in self.simulate(self._samples(later, share), share):
            known = self.known[late.key[0]]
            if known.pace is not None and seen.rounds:
                known.pace = replace(known.pace, others=(*known.pace.others, seen))

    def _without_pace(self) -> list[str]:
        """Return the names of candidates for which the budget has not yet sufficed to simulate one round."""
        return [name for name, known in self.known.items() if known.pace is None and not known.why]

    def is_unfollowed(self, known: Known) -> bool:
        """Return whether a candidate may be the best, but was not trained, as the budget did not suffice."""
        return estimate.left_at(known) is None and not self._has_reached(known) and self.worth([known], 1.0) > 0

    def _find_missing_paces(self, share: float) -> None:
        """Simulate candidates without a pace. Each may use all of the remaining budget, as its fair part was too
        little."""
        wanted = [(name, 0.0) for name in self._without_pace()]
        for task, seen in self.simulate(self._samples(wanted, share, fair=False), share):
            self._take_pace(self.known[task.key[0]], seen)
        self._tell_paces()

    def _tell_paces(self) -> None:
        """Report for how many candidates the time of a round is known, and which budget would suffice for all."""
        missing = len(self._without_pace())
        paced = sum(known.pace is not None for known in self.known.values())
        if not missing:
            return
        enough = f"; about {math.ceil((paced + missing) / paced)} times the budget would" if paced else ""
        others = counted(missing, "other")
        self.tell(f"time of a round: known of {paced}; the budget did not suffice for {others}{enough}")

    def _unknown(self, candidate: Candidate) -> Known:
        plan = candidate.plan
        timed = mathematics.depends_on_network(plan)
        return Known(candidate, mathematics.signature(plan), timed, _spread_of_error(plan), self.question.prices)

    def _samples(
        self, wanted: list[tuple[str, float]], share: float, fair: bool = True
    ) -> Iterator[Task[tuple[str, float]]]:
        """Yield simulations of a few rounds of candidates.

        wanted  names of candidates, with the starting time (s) of the rounds to simulate
        share   of the budget, at which this stage ends
        fair    give each simulation a fair part of the remaining budget; otherwise each may use all of it, and nothing
                may be left for the last ones
        """
        for done, (name, start_s) in enumerate(wanted):
            plan = self.known[name].candidate.plan
            left = (
                math.ceil((len(wanted) - done) / self.question.jobs) if fair and done else 1
            )  # the first one also loads modules and data for all
            limits = self.budget.limits(share, of=left)
            yield Task((name, start_s), sampled(plan, rounds_to_sample(plan), start_s), limits)

    def _take_pace(self, known: Known, seen: Observation) -> None:
        if seen.status == FAILED:
            known.why = f"it failed: {seen.message}"
        elif seen.rounds > mathematics.ahead(known.candidate.plan):
            known.pace = Pace.of(known.candidate.plan, seen)

    def _starts_s(self, known: Known) -> list[float]:
        """Return the later starting times (s), spread over the run, from which a candidate's rounds are simulated too.

        Empty if its network and devices do not vary, or it is not promising.
        """
        if known.pace is None or not varies(known.candidate.plan):
            return []
        if self._promise(known) > PROMISING * min(map(self._promise, self.paced)):
            return []
        whole_s = known.pace.time_s(known.candidate.plan.training.rounds)
        return [whole_s * part / PACE_STARTS for part in range(1, PACE_STARTS)]

    # ---- learning ---------------------------------------------------------------------------------------------------

    def _set_rounds(self) -> None:
        own = next((known.pace for known in self.known.values() if known.pace is not None), None)
        for known in self.paced:
            assert known.pace is not None and own is not None
            known.rounds, known.every = rounds_for(known.candidate.plan, known.pace.steps, own.steps, MORE_STEPS)

    def _learn(self, most: float, share: float) -> None:
        """Train candidates, for at most ``most`` times the steps of the scenario's own technique.

        share  of the budget, at which this stage ends
        """
        self._set_rounds()
        groups = self.by_mathematics()
        self.tell(f"learning: {counted(len(groups), 'kind')} of mathematics, to {most:g} times the steps")
        for task, seen in self.simulate(self._trainings(list(groups.values()), most, share), share):
            for known in groups[task.key]:
                before = known.curves.get(task.plan.seed)
                if before is None or seen.rounds >= before.rounds:  # otherwise the budget cut this training short
                    known.curves[task.plan.seed] = seen

    def by_mathematics(self) -> dict[str, list[Known]]:
        """Return the candidates grouped by their mathematics, the most promising group first."""
        groups: dict[str, list[Known]] = {}
        for known in self.paced:
            groups.setdefault(known.mathematics, []).append(known)
        values = {key: min(map(self._promise, members)) for key, members in groups.items()}
        return {key: groups[key] for key in sorted(groups, key=values.__getitem__)}

    def _promise(self, known: Known) -> float:
        """Return the value per training sample: lower is more promising."""
        return self.question.value(self._of_a_sample(known))

    def _trainings(self, groups: Iterable[list[Known]], most: float, share: float) -> Iterator[Task[str]]:
        waiting = list(groups)
        for number, members in enumerate(waiting):
            first = members[0]
            rounds = self.worth(members, most)
            within = UNLIMITED
            if first.timed:  # its first rounds do not predict later ones, so it runs until its value is too high
                rounds = math.ceil(first.rounds * most / MORE_STEPS)
                within = self.question.within(first, self.bound())
            if rounds and not self._is_followed(first, rounds):
                plan = self.training(first, first.candidate.plan, rounds)
                left = math.ceil((len(waiting) - number) / self.question.jobs)
                yield Task(first.mathematics, plan, self.budget.limits(share, left, within))

    def _is_followed(self, known: Known, rounds: int) -> bool:
        """Return whether a candidate needs no more training.

        This is so if it has made ``rounds`` rounds, has reached the goal, or has failed or diverged. If its learning
        depends on times, it is also so if it has already taken ``bound()``.
        """
        seen = known.curves.get(self.seed)
        if seen is None:
            return False
        if seen.status not in (DONE, STOPPED) or seen.rounds >= rounds or self._has_reached(known):
            return True
        left = estimate.left_at(known)
        return known.timed and left is not None and self.question.value(left) >= self.bound()

    def _has_reached(self, known: Known) -> bool:
        assert self.question.target is not None
        return bool(estimate.reached(known, self.question.target))

    def worth(self, members: list[Known], most: float) -> int:
        """Return for how many rounds to train these candidates: after more, none of them could be the best."""
        bound = self.bound()
        return max(self._rounds_within(known, bound, most) for known in members)

    def bound(self) -> float:
        """Return the value up to which candidates are trained: ``MARGIN`` times the lowest mean over seeds."""
        value = self.question.value
        return MARGIN * min((sum(map(value, ends)) / len(ends) for ends in self.at_goal().values()), default=math.inf)

    def _rounds_within(self, known: Known, bound: float, most: float) -> int:
        """Return for how many rounds to train a candidate: until two evaluations after the last one within ``bound``.

        The result is a multiple of the rounds between evaluations, or all rounds of the candidate if these are fewer.
        It is 0 if even the first evaluation is beyond ``bound``.
        """
        limit = math.ceil(known.rounds * most / MORE_STEPS)
        low = 0
        high = max(1, math.ceil(limit / known.every))
        while low < high:
            middle = (low + high + 1) // 2
            rounds = middle * known.every
            if self.question.value(estimate.at_least_after(known, rounds)) <= bound:
                low = middle
            else:
                high = middle - 1
        return min(known.rounds, (low + 2) * known.every) if low else 0  # for a second score in a row, and one spare

    def training(self, known: Known, plan: Plan, rounds: int) -> Plan:
        """Return the Plan that trains a candidate for ``rounds`` rounds, or until it reaches the goal."""
        training = replace(plan.training, rounds=rounds, evaluate_every=min(known.every, rounds))
        return mathematics.trained_alone(replace(plan, training=training.aiming_at(self.question.target)))

    # ---- finalists --------------------------------------------------------------------------------------------------

    def finalists(self) -> list[Known]:
        """Return the candidates whose interval begins at or below the end of the best one's; the best first."""
        found = self.estimates()
        best = self.best()
        return [known for known in best if found[known.candidate.name].low <= found[best[0].candidate.name].high]

    def best(self) -> list[Known]:
        """Return the candidates that reach the goal with the lowest values, the best first; at most ``FINALISTS``."""
        found = self.estimates()
        order = sorted(found, key=lambda name: found[name].value)
        return [self.known[name] for name in order[:FINALISTS]]

    def _look_closer(self) -> None:
        self.tell("all rounds to the goal")
        for task, seen in self.simulate(self._whole_paces(), FINALISTS_SHARE):
            known = self.known[task.key]
            if known.pace is not None and seen.rounds > known.pace.first.rounds:
                known.pace = replace(known.pace, first=seen)
        for _ in range(SEEDS):  # another seed may make others finalists
            self.tell("finalists: other seeds")
            for late, seen in self.simulate(self._other_seeds(), FINALISTS_SHARE):
                mathematics_, seed = late.key
                for known in self.known.values():
                    if known.mathematics == mathematics_ and seen.status in (DONE, DIVERGED):
                        known.curves[seed] = seen

    def _whole_paces(self) -> Iterator[Task[str]]:
        """Yield simulations of all rounds to the goal, for candidates whose time to the goal is uncertain; the best
        first."""
        found = self.estimates()
        for name in sorted(found, key=lambda name: found[name].value):
            known = self.known[name]
            if known.timed or known.pace is None:
                continue
            rounds = max(curve.rounds for curve in known.curves.values())
            if varies(known.candidate.plan) or known.pace.spread(rounds) > SURE:
                plan = sampled(known.candidate.plan, rounds, 0.0)
                yield Task(name, plan, self.budget.limits(FINALISTS_SHARE))

    def _other_seeds(self) -> Iterator[Task[tuple[str, int]]]:
        """Yield trainings with the seeds that finalists lack, seed by seed, so that all are compared by equal seeds."""
        found = {known.mathematics: known for known in self.finalists()}.values()
        for seed in range(self.seed + 1, self.seed + SEEDS):
            for known in found:
                if seed not in known.curves:
                    plan = self.question.another_seed(known.candidate, seed)
                    training = self.training(known, plan, known.rounds)
                    yield Task((known.mathematics, seed), training, self.budget.limits(FINALISTS_SHARE))

    # ---- accuracy at the end ----------------------------------------------------------------------------------------

    def _follow_to_the_end(self) -> None:
        """Train the scenario's own technique and the best ones for all steps of the former, even past the goal."""
        self.tell("accuracy at the end")
        own = next(iter(self.known.values()))
        followed = {known.candidate.name: known for known in (own, *self.best()) if known.pace is not None}
        limits = self.budget.limits(ENDS_SHARE)
        tasks = [Task(name, self._whole(known), limits) for name, known in followed.items()]
        for task, seen in self.simulate(tasks, ENDS_SHARE):
            if seen.status == DONE and seen.scores:
                self.ends[task.key] = seen.scores[-1].accuracy

    def _whole(self, known: Known) -> Plan:
        rounds = math.ceil(known.rounds / MORE_STEPS)
        training = replace(known.candidate.plan.training, rounds=rounds, evaluate_every=rounds)
        return mathematics.trained_alone(replace(known.candidate.plan, training=training.aiming_at(None)))

    def lost(self, known: Known) -> float | None:
        """Return by how much the final accuracy is below that of the scenario's own technique; ``None`` if unknown."""
        own = self.ends.get(next(iter(self.known)))
        mine = self.ends.get(known.candidate.name)
        return None if own is None or mine is None else own - mine

    # ---- simulation -------------------------------------------------------------------------------------------------

    def simulate(self, tasks: Iterable[Task], share: float) -> Iterator[tuple[Task, Observation]]:  # type: ignore[type-arg]
        """Simulate tasks as long as the budget allows."""
        return simulate_all(self._allowed(tasks, share), self.question.jobs)

    def _allowed(self, tasks: Iterable[Task], share: float) -> Iterator[Task]:  # type: ignore[type-arg]
        for task in tasks:
            if not self.budget.allows(share):
                return
            self.budget.take()
            self.simulated += 1
            yield task


def _spread_of_error(plan: Plan) -> float:
    """Return the standard deviation of log(simulated time / exact time); 1.96 times it is the measured 95 % bound.

    A combination of network and congestion control that was not measured gets the largest error measured for
    another. A simulation by flows gets the error of runs whose flow model is doubtful, since only a whole run shows
    whether it is.
    """
    error = error_of(plan, doubted=plan.simulation.network == "flows") or widest_error()
    return math.log1p(error.within_95) / 1.96
