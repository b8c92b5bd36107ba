"""Makes an ``Advice`` from a scenario and what the user asks for."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from analysis.advise import estimate, pool
from analysis.advise.advice import BEATEN, MISSED, RANKED, REFUSED, UNKNOWN, Advice, Row
from analysis.advise.budget import Budget
from analysis.advise.candidates import (
    Candidate,
    Read,
    Refused,
    Technique,
    candidates,
    plan_with,
    refuse_what_is_not_simulated,
)
from analysis.advise.centres import nearer_centres, settings_with_centre
from analysis.advise.elsewhere import SHARE, elsewhere
from analysis.advise.estimate import Estimate, Known, Reached
from analysis.advise.goal import BYTES, MONEY, TIME, Constraints, Goal, read_constraints, read_goal
from analysis.advise.observation import Limits
from analysis.advise.prices import COLUMNS, Prices, read_prices
from analysis.advise.published_steps import known_steps
from analysis.advise.question import Question, Tell
from analysis.advise.search import Search
from analysis.advise.techniques import is_pipeline
from analysis.advise.why import Split, splits
from testbed.errors import ScenarioError
from testbed.execution.tuning import import_optuna
from testbed.numbers import short
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario import Scenario
from testbed.scenario.sweep import TuningRange, tuning_range
from testbed.simulation.prediction_error import error_of
from testbed.target import ACCURACY, LOSS, Target
from testbed.training.options import MODELS
from testbed.training.options.declarations import NOTHING

TRIALS = 4


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asks for.

    jobs    number of simulations at the same time
    prices  needed if money is to be minimised
    tune    the range in which a setting is searched for each technique; ``None`` for no tuning
    """

    goal: Goal
    constraints: Constraints
    jobs: int = 1
    prices: Prices | None = None
    tune: TuningRange | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """The user's options of ``testbed advise``, before they are parsed.

    jobs    number of simulations at the same time; ``None`` for the number of cores
    prices  a file of prices
    tune    a range such as ``learning_rate=3e-4..1e-1``
    trials  number of runs of each technique that search in this range
    """

    goal: str | None = None
    least: str = TIME
    require: Sequence[str] = ()
    jobs: int | None = None
    prices: Path | None = None
    tune: str | None = None
    trials: int = TRIALS


def wish(scenario: Scenario, words: Words) -> Wish:
    """Parse the user's options for a scenario. Raise ``ScenarioError`` for an invalid or missing option."""
    own = None if scenario.is_program else scenario.training.target
    goal = read_goal(words.goal, words.least, own)
    if goal.least == MONEY and words.prices is None:
        raise ScenarioError(
            f"--least {MONEY}: the prices of this network are unknown; give --prices FILE.csv "
            f"(columns {','.join(COLUMNS)})"
        )
    prices = read_prices(words.prices) if words.prices else None
    tune = None
    if words.tune is not None:
        if goal.target is None:
            raise ScenarioError(
                "--tune: searches the value that reaches a goal soonest; add --goal accuracy=0.9, or loss=2.5"
            )
        tune = tuning_range(words.tune, words.trials)
        import_optuna()
    jobs = words.jobs or len(os.sched_getaffinity(0))
    return Wish(goal, read_constraints(words.require), jobs, prices, tune)


def advise(
    read: Read,
    techniques: Mapping[str, Technique],
    asked: Wish,
    budget: Budget,
    tell: Tell = lambda text: None,
    additions: Mapping[str, Technique] | None = None,
    explained: bool = True,
) -> Advice:
    """Rank the techniques on the user's scenario, and also the best of them combined with each of the ``additions``.

    read       reads the user's scenario with overrides
    additions  techniques of one axis, by name
    explained  whether to find out why the first technique wins, and on which other networks it would not

    Ctrl-C ends the search: the advice then has the results so far, and ``INTERRUPTED`` among its notes. Raise
    ``ScenarioError`` if no advice is possible.
    """
    own = read([], "simulate")
    refuse_what_is_not_simulated(own)
    found, refused = candidates(read, techniques, asked.goal, asked.constraints)
    if not found:
        reasons = [f"{each.name} {each.why}" for each in refused]
        raise ScenarioError(["advise: no technique is left; loosen --require, or give other --techniques", *reasons])
    if asked.tune is not None:
        read([f"{asked.tune.path}={asked.tune.low!r}"], "simulate")  # raises an error if there is no such setting
    if asked.prices is not None:
        asked.prices.check([site.name for site in found[0].plan.network.sites])
    notes: list[str] = []
    target = asked.goal.target
    if not _learns(found[0].plan):
        target = None
        notes.append(_NO_NUMBERS)
    elif target is None:
        notes.append(_NO_GOAL)
    unknown = [candidate.name for candidate in found if error_of(candidate.plan) is None]
    if unknown:
        notes.append(_NOT_CLAIMED.format("" if len(unknown) == len(found) else f" of {', '.join(unknown)}"))
    if is_pipeline(own) and any(candidate.plan.pipeline is not None for candidate in found[1:]):
        notes.append(_OF_PIPELINES)
    question = Question(
        target=target,
        value=_value(asked.goal),
        another_seed=_seeded(read, asked.goal),
        jobs=asked.jobs,
        prices=asked.prices,
        points=asked.constraints.points,
        within=partial(_within, asked.goal),
        combined=partial(_combined, read, additions or {}, asked),
        tune=asked.tune,
        changed=partial(_changed, read, asked.goal),
    )
    pool.prepare([candidate.plan for candidate in found])
    search = Search(question, budget, tell)
    try:
        search.run(found)
    except KeyboardInterrupt:
        if not search.paced:
            raise
        explained = False
        notes.append(INTERRUPTED)
    goal = Goal(target, asked.goal.least)
    rows = [*_rows(search, goal), *(_refused(each) for each in refused)]
    return Advice(
        name=own.name,
        goal=goal,
        rows=tuple(rows),
        known=search.known,
        read=read,
        notes=tuple(notes),
        simulations=search.simulated,
        splits=_splits(search, rows, goal.least) if explained else {},
        elsewhere=tuple(elsewhere(search)) if explained else (),
        tuning=asked.tune,
        tuned=search.tuned,
    )


def _changed(read: Read, goal: Goal, candidate: Candidate, setting: str) -> Candidate:
    """Return a candidate with the setting ``path=value``, in place of any earlier one of that path."""
    settings = (*(each for each in candidate.settings if not each.startswith(f"{setting.partition('=')[0]}=")), setting)
    return replace(candidate, settings=settings, plan=plan_with(read, settings, goal))


def _combined(
    read: Read, additions: Mapping[str, Technique], asked: Wish, best: Sequence[Candidate]
) -> list[Candidate]:
    """Return new candidates made of the best ones, without those that the scenario or the constraints refuse.

    These are the best candidate with other options or another central data centre, and each of ``best`` with each of
    the ``additions``.
    """
    techniques = {
        f"{_plain(candidate.name)} + {name}": Technique(
            (*candidate.settings, *addition.settings), f"{candidate.summary}; {addition.summary}"
        )
        for candidate in best
        for name, addition in additions.items()
        if name != _plain(candidate.name)
    }
    others = {**_with_other_centres(read, best[0]), **_with_other_options(best[0])} if best and additions else {}
    found, _ = candidates(read, {**others, **techniques}, asked.goal, asked.constraints)
    return found


def _with_other_options(candidate: Candidate) -> dict[str, Technique]:
    """Return variants of a candidate: each integer option of its synchronisation algorithm is halved or doubled."""
    choice = candidate.plan.technique.sync_tier2
    numbers = {
        name: value
        for name, value in choice.options.items()
        if isinstance(value, int) and not isinstance(value, bool) and value > 1
    }
    return {
        f"{_plain(candidate.name)}, {name} {changed}": Technique(
            (*candidate.settings, f"sync.{name}={changed}"), candidate.summary
        )
        for name, value in numbers.items()
        for changed in (value // 2, 2 * value)
    }


def _with_other_centres(read: Read, candidate: Candidate) -> dict[str, Technique]:
    """Return variants of a candidate with another central data centre that is nearer to the others."""
    own = next((site.name for site in candidate.plan.network.sites if site.central), "")
    return {
        f"{_plain(candidate.name)}, central {name}": Technique(
            settings_with_centre(read, candidate.settings, own, name), candidate.summary
        )
        for name in nearer_centres(candidate.plan)
    }


def _plain(name: str) -> str:
    return name.partition(" (")[0]


def _splits(search: Search, rows: Sequence[Row], least: str) -> dict[str, Split]:
    """Return how the time of the two best techniques splits into parts; empty if the budget is used up."""
    ranked = [row for row in rows if row.outcome == RANKED and row.estimate is not None][:2]
    is_time = search.question.target is not None and least == TIME
    times_s = [row.estimate.value if is_time and row.estimate else row.time_s for row in ranked]
    best = [(search.known[row.name], time_s) for row, time_s in zip(ranked, times_s, strict=True) if time_s]
    if not search.budget.allows(SHARE):
        return {}
    return splits(best)


_OF_PIPELINES = (
    "The scenario cuts its model into stages, so schedules and placements of pipelines are compared; to compare them "
    "with techniques of whole models, name these: --techniques fsa,diloco."
)
INTERRUPTED = "Interrupted: what was known by then."
_NO_NUMBERS = (
    "The model is declared by its sizes alone, so how fast it learns was not computed: techniques are ranked by what a "
    "training sample takes, and convergence is not decided."
)
_NO_GOAL = (
    "There is no goal (--goal accuracy=0.9, --goal loss=2.5, or a target of the scenario): techniques are "
    "ranked by what a training sample takes, and convergence is not decided."
)


_NOT_CLAIMED = (
    "No exact run has shown how far simulations{} with this network and congestion control are off; intervals are as "
    "wide as the largest error elsewhere makes them."
)


def _learns(plan: Plan) -> bool:
    return plan.training.compute != "modelled" and MODELS[plan.training.model.kind].takes != NOTHING


def _value(goal: Goal) -> Callable[[Reached], float]:
    if goal.least == TIME:
        return lambda reached: reached.time_s
    if goal.least == BYTES:
        return lambda reached: max(reached.wan_bytes, 1.0)  # above 0, since estimates take its logarithm
    return lambda reached: max(reached.usd, 1e-12)


def _within(goal: Goal, known: Known, most: float) -> Limits:
    """Return the limits at which a candidate's run has certainly taken more than ``most`` s, bytes or US dollars."""
    if goal.least == TIME:
        return Limits(virtual_s=most)
    if goal.least == BYTES:
        return Limits(wan_bytes=most)
    assert known.prices is not None and known.pace is not None
    of_second = known.prices.usd_per_hour / 3600
    of_byte = known.prices.of_byte(known.pace.first.pairs)
    return Limits(
        virtual_s=most / of_second if of_second else math.inf,
        wan_bytes=most / of_byte if of_byte else math.inf,
    )


def _seeded(read: Read, goal: Goal) -> Callable[[Candidate, int], Plan]:
    wanted = [] if goal.target is None else goal.target.settings

    def plan_of(candidate: Candidate, seed: int) -> Plan:
        return build_plan(read([*candidate.settings, *wanted, f"seed={seed}"], "simulate"))

    return plan_of


def _rows(search: Search, goal: Goal) -> list[Row]:
    found = search.estimates()
    surely_more = min(found.values(), key=lambda each: each.value).high if found else math.inf
    rows = [_row(search, known, found.get(name), goal, surely_more) for name, known in search.known.items()]
    return sorted(rows, key=_place)


def _place(row: Row) -> tuple[int, float]:
    order = (RANKED, BEATEN, MISSED, UNKNOWN, REFUSED)
    return order.index(row.outcome), row.estimate.value if row.estimate else math.inf


def _row(search: Search, known: Known, found: Estimate | None, goal: Goal, surely_more: float) -> Row:
    """Return the table row of a candidate.

    found        its estimate; ``None`` if it did not reach the goal
    surely_more  the upper end of the best candidate's interval: a candidate that has taken as much is beaten
    """
    candidate = known.candidate
    about: dict[str, Any] = {
        "name": candidate.name,
        "summary": candidate.summary,
        "settings": candidate.settings,
        "round_s": known.pace.round_s if known.pace else None,
    }
    if known.pace is None:
        outcome = REFUSED if known.why else UNKNOWN
        return Row(**about, outcome=outcome, why=known.why or "not one round could be simulated within the budget")
    if goal.target is None:
        steps = known_steps(known)
        if steps is None:
            return Row(**about, outcome=RANKED, why="its steps to a loss are not known", estimate=found)
        return Row(**about, outcome=RANKED, why=steps.told, estimate=found, steps=steps.factor)
    accuracy, loss = _last_scores(known, goal.target)
    points = search.question.points
    lost = search.lost(known)
    if points is not None and lost is not None and lost > points:
        why = f"its accuracy at the end is {short(100 * lost)} points lower, more than {short(100 * points)}"
        return Row(**about, outcome=REFUSED, why=why, accuracy=search.ends[candidate.name])
    if found is not None:
        reached = estimate.reached(known, goal.target)
        ends = list(reached.values())
        count = len(ends)
        return Row(
            **about,
            outcome=RANKED,
            estimate=found,
            seeds=count,
            rounds=sum(end.rounds for end in ends) / count,
            time_s=sum(end.time_s for end in ends) / count,
            wan_bytes=sum(end.wan_bytes for end in ends) / count,
            usd=sum(end.usd for end in ends) / count if known.prices else None,
            accuracy=accuracy,
            loss=loss,
            why="; ".join(_beside(points is not None and lost is None, len(estimate.missed(known, reached)), count)),
        )
    return _not_reached(search, known, {**about, ACCURACY: accuracy, LOSS: loss}, surely_more)


def _last_scores(known: Known, target: Target) -> tuple[float | None, float | None]:
    """Return the last accuracy and loss of the seed whose last score is the best; ``(None, None)`` without scores."""
    last = [curve.scores[-1] for curve in known.curves.values() if curve.scores]
    last = [each for each in last if not math.isnan(getattr(each, target.measure))]
    best = target.best(getattr(each, target.measure) for each in last)
    return next(((each.accuracy, each.loss) for each in last if getattr(each, target.measure) == best), (None, None))


def _beside(unknown_end: bool, missed: int, reached: int) -> Iterator[str]:
    """Yield remarks on a ranked technique.

    unknown_end  whether a limit on the final accuracy could not be checked
    missed       number of seeds that did not reach the goal; ``reached``: number of those that did
    """
    if unknown_end:
        yield "its accuracy at the end was not computed"
    if missed:
        yield f"with {missed} of {missed + reached} seeds the goal is not reached in its rounds, so it takes more"


def _not_reached(search: Search, known: Known, about: Mapping[str, Any], surely_more: float) -> Row:
    left = estimate.left_at(known)
    if not known.rounds or search.is_unfollowed(known):
        return Row(**about, outcome=UNKNOWN, why="the budget did not suffice for its learning")
    if left is None:
        return Row(**about, outcome=BEATEN, why="its first evaluation comes later than the best reaches the goal")
    bound = search.question.value(left)
    told = Estimate(bound, bound, math.inf, 0.0)
    wanted = search.question.target
    is_near = wanted is not None and about[wanted.measure] is not None and wanted.is_met(about[wanted.measure])
    unreached = "without two scores in a row at the goal" if is_near else "without reaching the goal"
    if estimate.gave_up(known):
        outcome = MISSED
        why = f"{left.rounds:g} rounds, {unreached}"
    elif bound >= surely_more:
        outcome = BEATEN
        why = unreached if is_near else ""
    else:
        outcome = UNKNOWN
        why = f"the budget sufficed for {left.rounds:g} rounds, {unreached}"
    return Row(
        **about,
        outcome=outcome,
        why=why,
        estimate=told,
        seeds=len(known.curves),
        rounds=left.rounds,
        time_s=left.time_s,
        wan_bytes=left.wan_bytes,
        usd=left.usd if known.prices else None,
    )


def _refused(each: Refused) -> Row:
    return Row(each.name, "", REFUSED, each.why)
