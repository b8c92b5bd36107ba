"""Turns the numbers of a sweep into sentences: the winner, the interval, and how many seeds decide it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median

from analysis.comparable import coarse, unequal_faults, unequal_steps
from analysis.confidence import Ratio, seeds_to_resolve
from analysis.sweeps.points import Case, Point
from testbed.numbers import between, counted, factor, seconds, short
from testbed.results import COMPLETED
from testbed.results.sweep_index import TunedPoint, Tuning
from testbed.target import Target

SEEDS_TO_BEGIN = 3
"""With two seeds, the 95 % interval of a mean reaches 13 standard errors to each side."""

FINAL = {*COMPLETED, "failed"}
"""Runs in these states are not started again by the same command."""

GO_ON = "the same `testbed sweep` command goes on where it stopped"

_EQUAL = 0.005  # a ratio whose whole interval is this near 1 needs no further seeds

_WON = {
    "time_to_target_s": "reached {target} soonest",
    "step_time_s": "took the least time for a step",
    "training_s": "ran shortest",
}


def measure_of(cases: Sequence[Case], target: Target | None) -> str:
    """Return the decisive measure: the time to the target, without a target the time of a step, or, if no step was
    timed, as for users' programs, the run time."""
    if target is not None:
        return "time_to_target_s"
    timed = any(point.values("step_time_s") for case in cases for point in case.points)
    return "step_time_s" if timed else "training_s"


def conclusion(cases: Sequence[Case], target: Target | None, tuned: bool = False) -> list[str]:
    """Return the sentences. Those of each case begin with the winner; then come missed targets and doubts.

    tuned  a setting was tuned for each point
    """
    measure = measure_of(cases, target)
    told = []
    for case in cases:
        steps = (
            ()
            if tuned
            else unequal_steps([{"label": each.label, **row} for each in case.points for row in each.completed[:1]])
        )
        done = [{"label": point.label, **row} for point in case.points for row in point.completed]
        doubts = [*steps, *unequal_faults(done), *coarse(done), *_between_evaluations(case, measure)]
        sentences = " ".join([*_winner(case, measure, target), *_missed(case, target), *_fallen(case, target), *doubts])
        told.append(f"{case.told}: {sentences}" if case.told else sentences)
    return [*told, *_learning(cases, target), *_not_done(cases), *_doubtful(cases)]


def left_out(reasons: Mapping[str, str]) -> list[str]:
    """Return a sentence for each technique that could not run on the scenario."""
    return [f"{name} was left out: {reason}" for name, reason in reasons.items()]


def tuning_told(tuning: Tuning) -> list[str]:
    """Return sentences about the tuning: its range, the value of each point, and values at an end of the range."""
    names = [_named(point) for point in tuning.points]
    values = ", ".join(f"{name} {point.value}" for name, point in zip(names, tuning.points, strict=True))
    stopped = sum(point.stopped for point in tuning.points)
    runs = f"{counted(tuning.runs, 'run')} each, with seed {tuning.seed}"
    early = f" ({stopped} of {tuning.runs * len(tuning.points)} were stopped early, as they could not win)"
    between_ends = f"between {tuning.low} and {tuning.high}"
    told = [f"{tuning.path} was tuned for each point {between_ends}, by {runs}{early}: {values}."]
    for end, cure in (("low", "lower"), ("high", "higher")):
        at_end = [name for name, point in zip(names, tuning.points, strict=True) if point.at_end == end]
        if at_end:
            limit = tuning.low if end == "low" else tuning.high
            told.append(f"The best value of {_listed(at_end)} is the end of that range, {limit}: try {cure} ones.")
    return told


def _named(point: TunedPoint) -> str:
    return ", ".join(point.settings.values()) or "all runs"


def ranked(case: Case, measure: str) -> list[Point]:
    """Return the points whose completed runs all have the measure; the lowest geometric mean first.

    The mean is over the seeds that all these points have in common, if there are any.
    """
    known = [point for point in case.points if point.completed and all(point.by_seed(measure).values())]
    common = set.intersection(*(set(point.by_seed(measure)) for point in known)) if known else set()

    def mean(point: Point) -> float:
        values = point.by_seed(measure)
        return fmean(math.log(value) for seed, value in values.items() if value and (seed in common or not common))

    return sorted(known, key=mean)


def _winner(case: Case, measure: str, target: Target | None) -> Iterator[str]:
    found = ranked(case, measure)
    won = _WON[measure].format(target=target.told if target is not None else "")
    if not found:
        yield _nobody(case, target)
        return
    winner, *rivals = found
    if not rivals:
        yield _alone(case, winner, measure, won)
        return
    ratios = [(rival, rival.ratio(winner, measure)) for rival in rivals]
    decided = [(rival, ratio) for rival, ratio in ratios if ratio is None or ratio.count > 1]
    if not decided:
        yield _by_one_seed(case, winner, ratios, won)
        return
    open_ = [(rival, ratio) for rival, ratio in decided if ratio is None or not (ratio.is_resolved or _is_one(ratio))]
    if open_:
        yield _unresolved(winner, open_, won)
    else:
        yield from _resolved(case, winner, decided, won)
    once = [rival for rival, ratio in ratios if ratio is not None and ratio.count == 1]
    if once:
        names = _listed([rival.label for rival in once])
        nothing = f"{winner.label} has one seed in common, which decides nothing"
        yield f"With {names} {nothing}: {_more_seeds(once)}."


def _is_one(ratio: Ratio) -> bool:
    """Return whether the whole interval is so near 1 that further seeds are not worth running."""
    return ratio.low > 1 - _EQUAL and ratio.high < 1 + _EQUAL


def _resolved(case: Case, winner: Point, ratios: Sequence[tuple[Point, Ratio | None]], won: str) -> Iterator[str]:
    """Yield the winner. Points whose ratio to it is shown as 1 took equally long, even if the seeds resolve it."""
    equal = [rival for rival, ratio in ratios if ratio is not None and factor(ratio.value) == factor(1.0)]
    slower = [(rival, ratio) for rival, ratio in ratios if rival not in equal]
    alike = f"{_listed([point.label for point in (winner, *equal)])} took equally long"
    if not slower:
        yield f"{alike}."
        return
    first = f"{alike}, and {won}" if equal else f"{winner.label} {won}"
    yield f"{first}: {_ahead(case, winner, slower)}."
    if case.base in [rival for rival, _ in slower[1:]]:
        yield f"Next is {slower[0][0].label}, which takes {_times(slower[0][1], 'as long')}."


def _between_evaluations(case: Case, measure: str) -> Iterator[str]:
    """Yield the points that the winner leads by less than the time between two evaluations.

    A target may have been reached at any time since the evaluation before. The evaluations of a run are about equally
    far apart, so the last of n evaluations covers a part of 1 / n of the time. ``coarse`` tells of those with n = 1.
    """
    found = ranked(case, measure)
    if measure != "time_to_target_s" or len(found) < 2:
        return
    near = []
    for rival in found[1:]:
        evaluations = [each for each in rival.values("evaluations_to_target") if each > 1]
        ratio = rival.ratio(found[0], measure)
        is_ahead = ratio is not None and ratio.is_resolved and factor(ratio.value) != factor(1.0)
        if evaluations and ratio and is_ahead and ratio.value < 1 + 1 / median(evaluations):
            near.append(rival.label)
    if near:
        yield (
            f"The lead over {_listed(near)} is less than the time between two evaluations, which alone show that a "
            "target is reached; with a smaller `training.evaluate_every` (in rounds) it would be surer."
        )


def _nobody(case: Case, target: Target | None) -> str:
    if not any(point.completed for point in case.points):
        return "No run is done, so nothing can be said."
    if target is None:
        return "Nothing was timed in these runs."
    if len(case.points) == 1:
        return f"{target.told[0].upper()}{target.told[1:]} was not reached with all seeds."
    easier = "train for more rounds, or compare with a --target that is easier to reach"
    return f"No point reached {target.told} with all of its seeds: {easier}."


def _alone(case: Case, winner: Point, measure: str, won: str) -> str:
    if len(case.points) > 1:
        return f"{winner.label} alone {won.removesuffix(' soonest')} with all of its seeds."
    values = winner.values(measure)
    spread = between(seconds(min(values)), seconds(max(values)))
    seeds = counted(len(values), "seed")
    what = {"time_to_target_s": "Time to the target", "step_time_s": "Time of a step"}.get(measure, "Run time")
    return f"{what}: {seconds(median(values))} in the median of {seeds} ({spread}). There is no other point to compare."


def _by_one_seed(case: Case, winner: Point, ratios: Sequence[tuple[Point, Ratio | None]], won: str) -> str:
    other, ratio = _against_base(case, winner, ratios)
    ahead = f": {factor(ratio.value)} as fast as {other.label}" if ratio else ""
    once = [point for point in (winner, *(rival for rival, _ in ratios)) if len(point.completed) == 1]
    whose = f" of {_listed([point.label for point in once])}" if 0 < len(once) <= len(ratios) else ""
    unknown = f"one seed{whose} cannot say whether another would change that ({_more_seeds(once)})"
    if ratio and factor(ratio.value) == factor(1.0):
        return f"{winner.label} and {other.label} took equally long; {unknown}."
    return f"{winner.label} {won}{ahead}; {unknown}."


def _more_seeds(points: Sequence[Point]) -> str:
    """Return how to get more seeds for points that have one: by going on, if runs are not done; or by ``--seeds``."""
    if any(row["status"] not in FINAL for point in points for row in point.rows):
        return GO_ON
    return f"run the sweep with --seeds {SEEDS_TO_BEGIN} or more"


def _ahead(case: Case, winner: Point, ratios: Sequence[tuple[Point, Ratio | None]]) -> str:
    other, ratio = _against_base(case, winner, ratios)
    assert ratio is not None  # resolved points have a ratio
    seeds = min(each.count for _, each in ratios if each)
    ahead = _times(ratio, f"as fast as {other.label}")
    return f"{ahead}; {counted(seeds, 'seed')} decide it"


def _against_base(
    case: Case, winner: Point, ratios: Sequence[tuple[Point, Ratio | None]]
) -> tuple[Point, Ratio | None]:
    """Return the base with its ratio to the winner; if the base is not among them, the next point after the winner."""
    return next(((rival, ratio) for rival, ratio in ratios if rival is case.base), ratios[0])


def _unresolved(winner: Point, rivals: Sequence[tuple[Point, Ratio | None]], won: str) -> str:
    nearest, ratio = rivals[0]
    others = f", and no more than {_listed([rival.label for rival, _ in rivals[1:]])}" if len(rivals) > 1 else ""
    head = f"Not resolved: {winner.label} {won} in the mean, but cannot be told from {nearest.label}{others}"
    if ratio is None:
        return f"{head}; they have no seed in common."
    return f"{head} ({nearest.label} takes {_times(ratio, 'as long')}); {_more(rivals)}."


def _more(rivals: Sequence[tuple[Point, Ratio | None]]) -> str:
    """Return how many more seeds would distinguish the winner from all of the rivals."""
    known = [ratio for _, ratio in rivals if ratio is not None]
    needed = [seeds_to_resolve(ratio) for ratio in known]
    if None in needed:
        return "no number of seeds would tell them apart"
    more = max(max(1, count - ratio.count) for count, ratio in zip(needed, known, strict=True) if count is not None)
    digits = max(0, len(str(more)) - 2)  # the estimate is good for two digits at most
    return f"about {counted(round(more, -digits), 'more seed')} would"


def _times(ratio: Ratio | None, what: str) -> str:
    """Return the ratio as "… times ``what``", with its interval; in per cent if both ends would look equal."""
    if ratio is None:
        return f"an unknown time {what}"
    low = short(ratio.low)
    high = short(ratio.high)
    interval = f"{low} to {high}"
    if low == high:
        interval = f"± {short(100 * max(ratio.high / ratio.value - 1, 1 - ratio.low / ratio.value))} %"
    return f"{factor(ratio.value)} {what} (95 % interval {interval}, {counted(ratio.count, 'seed')})"


def _missed(case: Case, target: Target | None) -> Iterator[str]:
    """Yield which points did not reach the target with every seed or, if no point did, which came nearest."""
    if target is None or len(case.points) == 1:
        return
    missed = []
    for point in case.points:
        times = point.by_seed("time_to_target_s")
        reached = sum(value is not None for value in times.values())
        if reached < len(times):
            how_many = f"{reached} of {len(times)} seeds" if reached else "no seed"
            missed.append(f"{point.label} ({how_many}, {target.shown(_median_score(point, target))} at the end)")
    if missed and len(missed) < len(case.points):
        yield f"Not reached by every seed of {_listed(missed)}."
    elif missed:
        scores = [_median_score(point, target) for point in case.points]
        if (nearest := target.best(score for score in scores if score is not None)) is not None:
            yield f"Nearest is {missed[scores.index(nearest)]}."


def _fallen(case: Case, target: Target | None) -> Iterator[str]:
    """Yield which points reached the target with some seed but missed it again at the end."""
    if target is None:
        return
    fallen = []
    for point in case.points:
        reached = [row for row in point.completed if row.get("time_to_target_s") is not None]
        ends = [row[target.measure] for row in reached if row[target.measure] is not None]
        lost = [score for score in ends if not target.is_met(score)]
        if lost:
            how_many = f"{len(lost)} of {counted(len(point.completed), 'seed')}"
            way = "down" if target.missed == "below" else "up"
            fallen.append(f"{point.label} (with {how_many}, {way} to {target.shown(target.worst(lost))})")
    if fallen:
        yield f"{target.missed.capitalize()} the target at the end, after having reached it: {_listed(fallen)}."


def _median_score(point: Point, target: Target) -> float | None:
    values = point.values(target.measure)
    return median(values) if values else None


def _learning(cases: Sequence[Case], target: Target | None) -> Iterator[str]:
    scored = any(point.values("accuracy") for case in cases for point in case.points)
    if target is None and scored:
        yield "How fast the points learn is not compared, as there is no target: give --target 0.9, or loss=2.5."


def _not_done(cases: Sequence[Case]) -> Iterator[str]:
    rows = [row for case in cases for point in case.points for row in point.rows]
    states = Counter(row["status"] for row in rows if row["status"] not in COMPLETED)
    if states:
        told = _listed([f"{number} {state}" for state, number in states.items()])
        cure = "" if states.keys() <= FINAL else f"; {GO_ON}"
        yield f"{sum(states.values())} of {len(rows)} runs are not done ({told}) and are left out{cure}."
    if wild := sum(row["status"] == "diverged" for row in rows):
        yield f"{counted(wild, 'run')} diverged."


def _doubtful(cases: Sequence[Case]) -> Iterator[str]:
    rows = [row for case in cases for point in case.points for row in point.completed]
    doubtful = sum(row.get("fidelity") == "degraded" for row in rows)
    if doubtful:
        yield f"The fidelity of {doubtful} of {len(rows)} runs is degraded: `testbed show RUN` has the reasons."


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
