"""Turns the numbers of an advice into sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import isinf

from analysis.advise.advice import BEATEN, MISSED, RANKED, REFUSED, UNKNOWN, Advice, Row
from analysis.advise.candidates import is_own
from analysis.advise.confirm import Confirmed, regret
from analysis.advise.elsewhere import FACTORS, Place
from analysis.advise.estimate import SEEDS_OF_A_VALUE
from analysis.advise.goal import BYTES, MONEY
from analysis.advise.why import why_first
from testbed.numbers import between, counted, factor, seconds, share, short, size

A_CHANCE = 0.05
"""A technique whose probability of being first is at least this may be as good as the best. It is the probability
beyond one side of a 90 % interval."""

FEW = 3
"""A sentence names at most this many techniques; the table names all."""

UNEVEN = 2
"""The advice says which data centre trains the model if its rounds are at least this multiple of another one's."""


def conclusion(advice: Advice) -> list[str]:
    """Return the sentences. The first ones name the best technique, or say that there is none."""
    said = [
        *_first(advice),
        *_few_seeds(advice),
        *_of_known_steps(advice),
        *_near(advice),
        *_uneven(advice),
        *_tuned(advice),
        why_first(advice.splits),
        *_elsewhere(advice),
    ]
    return [*filter(None, [*said, *_others(advice)]), *advice.notes]


def quantity(advice: Advice, value: float) -> str:
    """Return a time, a number of bytes or an amount of money as text, with its unit."""
    if advice.goal.least == BYTES:
        return size(value)
    if advice.goal.least == MONEY and advice.goal.target is None:
        return f"{short(1e6 * value)} USD a million"
    if advice.goal.least == MONEY:
        return f"{short(value)} USD"
    return seconds(value)


def interval(advice: Advice, row: Row) -> str:
    """Return the 90 % interval of a row as text."""
    assert row.estimate is not None
    return between(quantity(advice, row.estimate.low), quantity(advice, row.estimate.high))


def _first(advice: Advice) -> Iterator[str]:
    others = [row for row in advice.rows if not is_own(row.name)]
    is_alone = bool(others) and all(row.outcome == REFUSED for row in others)
    if is_alone:
        yield f"No other technique that was asked for is left. {'. '.join(reasons(others))}."
    if not advice.ranked:
        yield _none(advice)
        return
    best = advice.ranked[0]
    assert best.estimate is not None
    taken = f"{quantity(advice, best.estimate.value)} (90 % interval: {interval(advice, best)})"
    if is_alone:
        yield f"The scenario's own is alone, and takes {taken}: {best.name}."
        return
    among = _among(advice)
    if advice.goal.target is None:
        yield f"{among}{best.name} takes least for a training sample: {taken}."
        return
    wanted = advice.goal.target.told
    doing = {BYTES: "sends least over the WAN to", MONEY: "costs least to"}.get(advice.goal.least, "is the quickest to")
    yield f"{among}{best.name} {doing} {wanted}: {taken}."


def _few_seeds(advice: Advice) -> Iterator[str]:
    """Yield with how many seeds the best technique missed the goal, and whether it was trained with few seeds."""
    if advice.goal.target is None or not advice.ranked:
        return
    best = advice.ranked[0]
    trained = len(advice.known[best.name].curves)
    if best.seeds < trained:
        missed = f"{trained - best.seeds} of {counted(trained, 'seed')}"
        yield f"With {missed}, {best.name} does not reach the goal in its rounds, so it takes more than this."
    if trained < SEEDS_OF_A_VALUE:
        yield (
            f"{best.name} was trained with {counted(trained, 'seed')} only, and may miss the goal with others. "
            f"A larger --budget tries {SEEDS_OF_A_VALUE}."
        )


def _of_known_steps(advice: Advice) -> Iterator[str]:
    """Yield which technique is the best of those with known steps to a loss, if those of the first one are unknown."""
    known = {row.name: row.steps * row.estimate.value for row in advice.ranked if row.steps and row.estimate}
    if advice.goal.target is not None or not known or advice.ranked[0].steps:
        return
    name = min(known, key=known.__getitem__)
    yield (
        f"How many steps {advice.ranked[0].name} takes to a loss is not known. Where that is known, by a paper or as "
        f"steps are those of synchronous training, {name} is the best: {quantity(advice, known[name])} for each sample "
        "of synchronous training."
    )


def reasons(rows: Sequence[Row]) -> Iterator[str]:
    """Return the remarks on single techniques; techniques with the same remark share a text."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.why:
            names.setdefault(f"{row.outcome}: {row.why}", []).append(row.name)
    return (f"{', '.join(each)}: {why}" for why, each in names.items())


def _among(advice: Advice) -> str:
    """Return the beginning of the sentence about the best, if the budget did not suffice for all; otherwise empty."""
    if not any(row.outcome == UNKNOWN for row in advice.rows):
        return ""
    known = sum(row.outcome in (RANKED, BEATEN, MISSED) for row in advice.rows)
    return (
        "The budget sufficed for one technique only: "
        if known == 1
        else f"Of the {known} techniques that the budget sufficed for, "
    )


def _none(advice: Advice) -> str:
    if advice.goal.target is None:
        return "I do not know: nothing could be simulated within the budget; give a larger --budget."
    target = advice.goal.target
    twice = f"{target.told} with two scores in a row"
    scored = {row.name: row for row in advice.rows if row.score(target) is not None and row.outcome != REFUSED}
    nearest_score = target.best(row.score(target) or 0.0 for row in scored.values())
    best = next((row for row in scored.values() if row.score(target) == nearest_score), None)
    came = f"{best.name} came nearest with {target.shown(nearest_score)}{_after(advice, best)}" if best else ""
    if any(row.outcome == UNKNOWN for row in advice.rows):
        nearest = f"; {came}" if came else ""
        return (
            f"I do not know: within the budget no technique was seen to reach {twice}{nearest}. A larger --budget may "
            "find one, or the goal is out of reach."
        )
    if not came:
        return f"No technique is left that may reach {target.told}: see why each was refused."
    return (
        f"No technique reaches {twice} in the steps that the scenario gives; {came}. More rounds, another model or "
        "learning rate may; another network does not."
    )


def _after(advice: Advice, row: Row) -> str:
    """Return after how many rounds a technique reached the score of its row."""
    target = advice.goal.target
    assert target is not None
    last = [curve.scores[-1] for curve in advice.known[row.name].curves.values() if curve.scores]
    nearest = target.best(getattr(score, target.measure) for score in last)
    rounds = next(score.round + 1 for score in last if getattr(score, target.measure) == nearest)
    return f" after {counted(rounds, 'round')}"


def _near(advice: Advice) -> Iterator[str]:
    """Yield which techniques may be as good as the best, and how far the scenario's own technique is behind."""
    if len(advice.ranked) < 2:
        return
    best, *others = advice.ranked
    assert best.estimate is not None
    near = [row for row in others if row.estimate is not None and row.estimate.chance >= A_CHANCE]
    if near:
        names = ", ".join(row.name for row in near)
        yield f"It is first with a probability of {100 * best.estimate.chance:.0f} %; these may be as good: {names}."
    own = next((row for row in others if is_own(row.name)), None)
    if own is not None and own not in near and own.estimate is not None:
        yield f"The scenario's own technique takes {factor(own.estimate.value / best.estimate.value)} as much."


def _uneven(advice: Advice) -> Iterator[str]:
    """Yield each data centre's share of the rounds, if workers do not wait and the shares are very uneven."""
    if not advice.ranked:
        return
    best = advice.ranked[0]
    known = advice.known[best.name]
    curves = known.curves.values() if known.timed else ()
    rounds = sum((Counter(curve.by_site) for curve in curves), Counter())
    if len(rounds) < 2:
        return
    (most, made), *_, (least, fewest) = rounds.most_common()
    if made < UNEVEN * fewest:
        return
    shares = f"{most} makes {share(made / rounds.total())} of all rounds, {least} {share(fewest / rounds.total())}"
    yield (
        f"With {best.name}, workers do not wait for each other: {shares}. If data differ between data centres, the "
        f"model learns little from {least}'s."
    )


def _tuned(advice: Advice) -> Iterator[str]:
    """Yield the values that tuning found, and the techniques whose best value may lie beyond the range."""
    if advice.tuning is None:
        return
    path = advice.tuning.path
    found = {row.name: advice.tuned[row.name] for row in advice.ranked if row.name in advice.tuned}
    values = ", ".join(f"{name} {each.value}" for name, each in found.items() if each.value)
    runs = sorted({each.runs for each in advice.tuned.values()})
    made = between(str(runs[0]), str(runs[-1])) if len(runs) > 1 else str(runs[0] if runs else 0)
    ends = between(f"{advice.tuning.low:g}", f"{advice.tuning.high:g}")
    yield f"{path} was searched ({ends}; {made} runs for each technique): {values or 'none reaches the goal'}."
    at_end = ", ".join(name for name, each in found.items() if each.at_end)
    if at_end:
        yield f"The best value of {at_end} is an end of this range: search further there."


def _elsewhere(advice: Advice) -> Iterator[str]:
    """Yield on which other networks another technique would be first."""
    winners = {each.place: each.winner for each in advice.elsewhere}
    here = winners.get(Place(1, 1))
    for name in dict.fromkeys(winners.values()):
        if name != here:
            places = [place for place, winner in winners.items() if winner == name]
            cases = f"{len(places)} of {counted(len(winners) - 1, 'other case')}"
            yield f"On other networks, {name} would be first in {cases}: {_nearest(places)}."
    if here is not None and len(winners) > 1 and set(winners.values()) == {here}:
        yield f"{here} stays first {_everywhere(winners)}."


def _nearest(places: Sequence[Place]) -> str:
    """Return, as text, the places that differ from the scenario in the fewest factors."""
    changes = {place: _changes(place) for place in places}
    fewest = min(map(len, changes.values()))
    nearest = [" and ".join(told) for told in changes.values() if len(told) == fewest]
    among = "" if len(nearest) == len(places) else "among them "
    return among + "; ".join(f"with {text}" for text in nearest)


def _changes(place: Place) -> list[str]:
    """Return one text for each factor in which a place differs from the scenario."""
    factors = ((place.rate, "the rates"), (place.delay, "the delays"), (place.size, "the size of the model"))
    return [f"{factor(each)} {what}" for each, what in factors if each != 1]


def _everywhere(winners: Mapping[Place, str]) -> str:
    """Return the end of a sentence: on which networks the techniques were compared."""
    whole = len(FACTORS) ** 2
    if len(winners) == whole * len(FACTORS):
        return "with a quarter and four times all rates and delays, and of the model's size"
    if len(winners) >= whole:
        return "with a quarter and four times all rates and delays"
    return f"on {counted(len(winners) - 1, 'other network')}; the budget did not suffice to look at more"


def confirmation(advice: Advice, found: Sequence[Confirmed]) -> list[str]:
    """Return sentences that compare whole runs of the best techniques with their intervals, and give the regret."""
    said = []
    mean = "90 % interval" if advice.goal.target is None else f"90 % interval of the mean over {SEEDS_OF_A_VALUE} seeds"
    for each in found:
        took = "did not reach the goal" if isinf(each.value) else f"took {quantity(advice, each.value)}"
        within = f"{_beside(each)} the {mean} ({interval(advice, each.row)})"
        said.append(f"A whole run of {each.row.name} with one seed {took}: {within}.")
    if advice.goal.target is not None and not all(each.is_inside for each in found):
        said.append("One seed may well lie outside of what the mean over several keeps to.")
    if len(found) > 1:
        best = min(found, key=lambda each: each.value)
        lost = "not at all" if best is found[0] else f"by {share(regret(found))}"
        said.append(f"Of these, {best.row.name} was the best; following the advice missed it {lost}.")
    return said


def _beside(found: Confirmed) -> str:
    """Return whether a run lies inside, below or above its interval; outside, with the relative distance from its end.

    Rounded numbers might hide a small distance.
    """
    assert found.row.estimate is not None
    if found.is_inside:
        return "inside"
    if isinf(found.value):
        return "outside"
    if found.value < found.row.estimate.low:
        return f"{share(1 - found.value / found.row.estimate.low)} below"
    return f"{share(found.value / found.row.estimate.high - 1)} above"


_FATES = {
    MISSED: "the goal was not reached by {}",
    UNKNOWN: "the budget did not suffice to judge {}",
}


def _others(advice: Advice) -> Iterator[str]:
    """Yield the outcome of techniques that are not ranked."""
    beaten = sum(row.outcome == BEATEN for row in advice.rows)
    if beaten and advice.ranked:
        had = f"{counted(beaten, 'technique')} had already taken more than the best"
        yield f"{had}, without two scores in a row at the goal."
    for outcome, text in _FATES.items():
        names = [row.name for row in advice.rows if row.outcome == outcome]
        if names and (advice.ranked or outcome == UNKNOWN):
            named = ", ".join(names) if len(names) <= FEW else "them"
            yield f"{counted(len(names), 'technique')}: {text.format(named)}."
