"""``--tune``: the best value of one setting for each point of a sweep, before its seeds are run.

Each point has its own search, with the same number of runs, all with the first seed. The first run has the value that
the point has without tuning, so the tuned value is never worse with that seed. The next two runs have about three times
and a third of that value. Optuna's sampler (TPE) draws the further values. A run is stopped early when it cannot win:
it has passed the best time to the target without reaching it, or Optuna's pruner (the median of earlier runs) stops it.

The values lie on a logarithmic grid, so searches are alike on every machine. ``tuning.json`` keeps the tried values,
and the next call of the same sweep continues from there.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from testbed.errors import CapabilityError, ScenarioError, TestbedError
from testbed.execution.session import Event, Follower
from testbed.execution.sweep import SweepJob, run_points
from testbed.execution.sweep_points import SweepPoint
from testbed.execution.sweep_pool import Warn
from testbed.execution.sweep_run import Followers
from testbed.plan.model import Plan
from testbed.results import COMPLETED, atomic, tables
from testbed.results.rundir import RunDirectory, read_json
from testbed.results.summary import read_result
from testbed.results.sweep_index import TunedPoint, Tuning
from testbed.scenario.sweep import SweepAxis, SweepSettings, TuningRange
from testbed.target import ACCURACY, LOSS, Target, learning_of

FILE = "tuning.json"
_HALF_A_DECADE = 0.5
_JUDGES = 3  # complete runs needed before the median prunes; a single one would stop runs that begin slowly
_UNJUDGED = 3  # a run is not pruned during the first 1/_UNJUDGED of the rounds of the shortest complete run
_FIRST = 3  # runs whose values are not drawn: the point's own, and half a decade above and below it

MakePoint = Callable[[Mapping[str, str], int], SweepPoint]
"""Returns the point with these settings and this seed."""
Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a search.

    place        place of the value on the grid
    value        the tried value, as written in a scenario
    run          id of the run
    score        what the search minimises: the time to the target (s), or the error; ``None`` if the run failed
    reached      whether ``score`` is a time to the target
    is_stopped   whether it was ended early; ``score`` is then a bound that is worse than the best
    errors       by round, for the pruner: the test error, or the loss where that is the target or nothing else is known
    """

    place: int
    value: str
    run: str
    score: float | None
    reached: bool
    is_stopped: bool
    errors: dict[int, float]


@dataclass(frozen=True, slots=True)
class _Tried:
    """The content of ``tuning.json``: the range, and the trials in it, by the run's id."""

    path: str
    low: float
    high: float
    trials: dict[str, Trial]


@dataclass(frozen=True, slots=True)
class _Limits:
    """When a run cannot win: ``target`` is not reached in ``best_s``. ``earlier``: errors of other runs by round."""

    target: Target | None
    best_s: float | None
    earlier: tuple[Mapping[int, float], ...]


class _Stopper(Follower):
    """Ends runs that cannot win any more. ``limits``: by the name of the run directory."""

    def __init__(self, limits: Mapping[str, _Limits]) -> None:
        self._limits = limits
        self._of_this: _Limits | None = None
        self._begin_s = 0.0
        self._trial: Any = None

    def start(self, plan: Plan, directory: Path) -> None:
        self._of_this = limits = self._limits.get(directory.name)
        if limits is None or not limits.earlier:
            return
        optuna = import_optuna()
        shortest = min(max(errors) for errors in limits.earlier)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=_JUDGES, n_warmup_steps=shortest // _UNJUDGED)
        study = optuna.create_study(pruner=pruner)
        for errors in limits.earlier:
            trial = optuna.trial.create_trial(value=min(errors.values()), intermediate_values=dict(errors))
            study.add_trial(trial)
        self._trial = study.ask()

    def take(self, event: Event) -> Iterable[str]:
        if event["kind"] == "train":
            self._begin_s = event["t"]
        if event["kind"] == "evaluate" and self._of_this is not None and self._is_beaten(self._of_this, event):
            raise KeyboardInterrupt
        return ()

    def _is_beaten(self, limits: _Limits, event: Event) -> bool:
        error = _error_of(limits.target, event)
        if error is None:
            return False
        if limits.target is not None and limits.target.is_met(event[limits.target.measure]):
            return False  # it may have reached the target with this evaluation
        if limits.best_s is not None and event["snapshot_t"] - self._begin_s > limits.best_s:
            return True
        if self._trial is None:
            return False
        self._trial.report(error, event["round"])
        return bool(self._trial.should_prune())


def _followers(limits: Mapping[str, _Limits], others: Followers) -> Sequence[Follower]:
    return [_Stopper(limits), *others()]


def _error_of(target: Target | None, scores: Mapping[str, Any]) -> float | None:
    """Return the error of an evaluation: 1 - accuracy, or the loss if it is the target or there is no accuracy."""
    accuracy = scores.get(ACCURACY)
    if learning_of(target) == ACCURACY and accuracy is not None and math.isfinite(accuracy):
        return float(1 - accuracy)
    loss = scores.get(LOSS)
    return loss if loss is not None and math.isfinite(loss) else None


@dataclass(frozen=True, slots=True)
class Grid:
    """The values of a range, by place: about twelve per decade, at equal ratios.

    ``own``: the value that a point has without tuning; it replaces the nearest value of the grid.
    """

    range: TuningRange
    own: float

    @property
    def last(self) -> int:
        return max(1, round(_PER_DECADE * math.log10(self.range.high / self.range.low)))

    @property
    def own_place(self) -> int:
        """The place of the own value, or of the nearest end if the own value lies outside the range."""
        share = math.log(self.own / self.range.low) / math.log(self.range.high / self.range.low)
        return min(max(round(share * self.last), 0), self.last)

    def value(self, place: int) -> str:
        """Return a value as written in a scenario: without exponent, with two significant digits between the ends."""
        if place == self.own_place and self.range.low <= self.own <= self.range.high:
            return _decimal(self.own, _DIGITS_OF_A_USER)
        if place in (0, self.last):
            return _decimal(self.range.high if place else self.range.low, _DIGITS_OF_A_USER)
        return _decimal(self.range.low * (self.range.high / self.range.low) ** (place / self.last), 2)

    def steps_of(self, decades: float) -> int:
        return max(1, round(self.last * decades / math.log10(self.range.high / self.range.low)))


_PER_DECADE = 12
_DIGITS_OF_A_USER = 12


def _decimal(value: float, digits: int) -> str:
    return format(Decimal(f"{value:.{digits}g}"), "f")


@dataclass(slots=True)
class ValueSearch:
    """The search of one point: Optuna draws places of the grid, of which none is tried twice.

    >>> search = ValueSearch(settings={}, grid=Grid(range_, own=0.002), seed=1, target=Target("accuracy", 0.9))
    >>> asked, place = search.next_place()
    >>> search.take(asked, trial)  # with the grid's value at that place
    """

    settings: Mapping[str, str]
    grid: Grid
    seed: int
    target: Target | None
    trials: list[Trial] = field(default_factory=list)
    _study: Any = None

    def __post_init__(self) -> None:
        optuna = import_optuna()
        sampler = optuna.samplers.TPESampler(seed=self.seed, n_startup_trials=_FIRST)
        self._study = optuna.create_study(sampler=sampler)
        half = self.grid.steps_of(_HALF_A_DECADE)
        own = self.grid.own_place
        first = (own, own + half, own - half)
        for place in dict.fromkeys(min(max(place, 0), self.grid.last) for place in first):
            self._study.enqueue_trial({"place": place})

    def next_place(self) -> tuple[Any, int]:
        """Return Optuna's next trial whose value has not been tried, with its place on the grid."""
        optuna = import_optuna()
        tried = {trial.place: trial for trial in self.trials}
        places = optuna.distributions.IntDistribution(0, self.grid.last)
        asked = self._study.ask({"place": places})
        while (place := asked.params["place"]) in tried and len(tried) <= self.grid.last:
            self._tell(asked, tried[place])
            asked = self._study.ask({"place": places})
        return asked, place

    def take(self, asked: Any, trial: Trial) -> None:
        self.trials.append(trial)
        self._tell(asked, trial)

    def _tell(self, asked: Any, trial: Trial) -> None:
        if trial.score is None:
            self._study.tell(asked, state=import_optuna().trial.TrialState.FAIL)
        else:
            self._study.tell(asked, math.log(max(trial.score, 1e-9)))

    def limits(self) -> _Limits:
        finished = [trial for trial in self.trials if not trial.is_stopped and trial.errors]
        times = [trial.score for trial in finished if trial.reached and trial.score is not None]
        return _Limits(self.target, min(times, default=None), tuple(trial.errors for trial in finished))

    def end_of(self, trial: Trial) -> str:
        """Return ``low`` or ``high`` if a trial's value is that end of the range, else an empty text."""
        return {0: "low", self.grid.last: "high"}.get(trial.place, "")

    def best(self) -> Trial | None:
        """Return the best trial among those that ran to their end, the first of equal ones; None if there is none."""
        known = [trial for trial in self.trials if trial.score is not None and not trial.is_stopped]
        return min(known, key=lambda trial: (not trial.reached, trial.score), default=None)


def import_optuna() -> Any:
    """Return the module ``optuna``. Raise ``CapabilityError`` if it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # in a notebook, of a progress bar that is not shown
            import optuna
    except ImportError as error:
        cure = "pip install 'testbed[tune]'"
        raise CapabilityError(f"--tune needs Optuna, which cannot be imported ({error}): {cure}") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def tuned(job: SweepJob, range_: TuningRange, make: MakePoint, tell: Told, warn: Warn) -> SweepJob:
    """Search the best value for each point, and return the sweep with these values.

    make  makes a point with given settings and seed
    tell  takes lines of progress

    Raise ``CapabilityError`` without Optuna, and ``ScenarioError`` if no run of a point ends well.
    """
    import_optuna()
    if job.cluster:
        raise ScenarioError("--tune: searches on this machine; leave --cluster out")
    seeds = list(dict.fromkeys(point.seed for point in job.points))
    firsts: dict[tuple[tuple[str, str], ...], SweepPoint] = {}  # one point for each settings, with its first seed
    for point in job.points:
        firsts.setdefault(tuple(point.settings.items()), point)
    searches = [_search(point, range_, seeds[0]) for point in firsts.values()]
    job.directory.mkdir(parents=True, exist_ok=True)
    known = _known(job.directory / FILE, range_)
    for number in range(range_.trials):
        asked = [(search, *search.next_place()) for search in searches]
        points = [
            make({**search.settings, range_.path: search.grid.value(place)}, seeds[0]) for search, _, place in asked
        ]
        limits = {point.id: search.limits() for point, (search, _, _) in zip(points, asked, strict=True)}
        new = [point for point in points if point.id not in known]
        if new:
            tell(f"tuning {range_.path}: run {number + 1} of {range_.trials} for each of {len(searches)} points")
            run_points(replace(job, followers=partial(_followers, limits, job.followers)), new, warn)
        for point, (search, trial, place) in zip(points, asked, strict=True):
            if point.id not in known:
                known[point.id] = _trial(point, place, search, range_, job.path(point))
            search.take(trial, known[point.id])
        atomic.write_json(job.directory / FILE, asdict(_Tried(range_.path, range_.low, range_.high, known)))
    return _with_best(job, searches, range_, make, seeds)


def _search(point: SweepPoint, range_: TuningRange, seed: int) -> ValueSearch:
    section, _, option = range_.path.partition(".")
    own = getattr(getattr(point.scenario, section).options, option, None)
    if not isinstance(own, float | int) or own <= 0:
        raise ScenarioError(f"--tune: {range_.path} of {_named(point.settings)} is not a number above 0")
    return ValueSearch(point.settings, Grid(range_, own), seed, point.plan.training.target)


def _named(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{path}={value}" for path, value in settings.items()) or "the scenario"


def _known(path: Path, range_: TuningRange) -> dict[str, Trial]:
    """Return the trials of earlier calls in this range, by the run's id."""
    if not path.is_file():
        return {}
    try:
        found = msgspec.convert(read_json(path), _Tried, strict=False)
    except (TestbedError, msgspec.ValidationError):  # damaged: the runs are still there
        return {}
    return found.trials if (found.path, found.low, found.high) == (range_.path, range_.low, range_.high) else {}


def _trial(point: SweepPoint, place: int, search: ValueSearch, range_: TuningRange, directory: Path) -> Trial:
    state = RunDirectory(directory).status().state
    value = point.settings[range_.path]
    is_stopped = state == "interrupted"
    if (state not in COMPLETED and not is_stopped) or not (directory / "result.json").is_file():
        return Trial(place, value, point.id, None, False, False, {})
    result = read_result(directory / "result.json")
    scores = tables.read(directory, ["accuracy"])["accuracy"]
    told = scores[["round", ACCURACY, LOSS]].to_dict("records")
    errors = {int(each["round"]): error for each in told if (error := _error_of(search.target, each)) is not None}
    time_s = result["time_to_target_s"]
    if time_s is not None and not is_stopped:
        return Trial(place, value, point.id, time_s, True, False, errors)
    if not errors or state == "diverged":
        return Trial(place, value, point.id, None, False, is_stopped, errors)
    return Trial(place, value, point.id, _bound(search, result, errors), False, is_stopped, errors)


def _bound(search: ValueSearch, result: Mapping[str, Any], errors: Mapping[int, float]) -> float:
    """Return the score of a run that has not reached the target: the further from the target, the larger.

    Without a target, the score is the last error.
    """
    last = errors[max(errors)]
    if search.target is None:
        return last
    worst_s = max([result["training_s"], *(trial.score or 0.0 for trial in search.trials if trial.reached)])
    score = last if search.target.measure == LOSS else 1 - last
    return float(worst_s * (1 + 3 * search.target.missing(score)))


def _with_best(
    job: SweepJob, searches: Sequence[ValueSearch], range_: TuningRange, make: MakePoint, seeds: Sequence[int]
) -> SweepJob:
    found: list[tuple[ValueSearch, Trial]] = []
    for search in searches:
        best = search.best()
        if best is None:
            raise ScenarioError(f"--tune: no run of {_named(search.settings)} ended well; see {job.directory / 'runs'}")
        found.append((search, best))
    settings = [{**search.settings, range_.path: best.value} for search, best in found]
    axis = SweepAxis(tuple(settings[0]), tuple(tuple(each.values()) for each in settings))
    points = [make(each, seed) for each in settings for seed in seeds]
    about = Tuning(
        path=range_.path,
        low=_decimal(range_.low, _DIGITS_OF_A_USER),
        high=_decimal(range_.high, _DIGITS_OF_A_USER),
        runs=range_.trials,
        seed=seeds[0],
        points=[_told(search, best) for search, best in found],
    )
    return replace(job, sweep=SweepSettings((axis,), tuple(seeds)), points=points, tuning=about)


def _told(search: ValueSearch, best: Trial) -> TunedPoint:
    return TunedPoint(
        settings=dict(search.settings),
        value=best.value,
        at_end=search.end_of(best),
        stopped=sum(trial.is_stopped for trial in search.trials),
        rounds=sum(max(trial.errors, default=0) for trial in search.trials),
    )
