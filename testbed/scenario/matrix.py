"""The composition matrix: which values of one axis can be combined with which values of another.

``testbed.scenario.rules`` judges each pair; ``settings`` adds the settings that a pair needs, such as ``merge: exact``
where payloads cannot be summed. ``testbed matrix`` prints the result as Markdown, and a test compares
scenarios/README.md with it. Two kinds of paradigm have no cells. A library's paradigms cannot run in virtual time, in
which cells run, and go with defaults only. A pipeline goes with whatever the paradigm of its replicas goes with.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import combinations
from typing import Annotated, Any

from pydantic import TypeAdapter

from testbed.aggregation import AGGREGATION
from testbed.codec.options import CODECS
from testbed.paradigms import PARADIGMS
from testbed.policy.events import Contribution
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.shard import SHARDS
from testbed.policy.sync import SYNC
from testbed.scenario.load import loads
from testbed.scenario.reading.axes import of_axis
from testbed.scenario.rules import violations_of
from testbed.scenario.rules.facts import lan_rounds_option, overlaps, pushed, tiers_of
from testbed.scenario.schema import Scenario

AXES: dict[str, tuple[str, ...]] = {
    "paradigm": tuple(kind for kind, each in PARADIGMS.shipped.items() if not each.library and not each.cuts_models),
    **{axis.name: tuple(axis.shipped) for axis in (SYNC, CODECS, ORDERS, OVERLAYS, SHARDS, AGGREGATION)},
}
DEFAULTS = {axis: kinds[0] for axis, kinds in AXES.items()}

Combination = Mapping[str, str]  # one kind for some of the axes; the others are at their defaults
Settings = dict[str, dict[str, Any]]  # by axis: kind and options, as a scenario would write them

_BASE = """
version: 1
name: matrix
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}, {name: c, workers: 1}]
  links: [{between: [a, b], rate: 20 Mbit/s, delay: 5 ms}, {between: [a, c], rate: 20 Mbit/s, delay: 5 ms}]
training: {model: mlp, data: digits, rounds: 1, evaluate_every: 1}
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """A pair of values on two axes. ``needs``: further settings; ``refused``: the reason, ``None`` if it is allowed."""

    axes: tuple[str, str]
    kinds: tuple[str, str]
    needs: tuple[str, ...]
    refused: str | None

    @property
    def combination(self) -> Combination:
        """The kinds by axis."""
        return dict(zip(self.axes, self.kinds, strict=True))


def cells() -> Iterator[Cell]:
    """Yield every pair of values on two different axes."""
    for axes in combinations(AXES, 2):
        for first in AXES[axes[0]]:
            for second in AXES[axes[1]]:
                combination = {axes[0]: first, axes[1]: second}
                reasons = refusals(combination)
                needs = () if reasons else needed(combination)
                yield Cell(axes, (first, second), needs, reasons[0] if reasons else None)


def refusals(combination: Combination, instead: Mapping[str, Any] | None = None) -> list[str]:
    """Return the reasons why a scenario with this combination and its needed settings is refused; empty if none.

    instead  values for axes on which the two tiers differ, as a scenario would write them
    """
    return [found.problem for found in violations_of(_with({**settings(combination), **(instead or {})}))]


def settings(combination: Combination) -> Settings:
    """Return the settings of a scenario for ``combination``, including those that it needs. Defaults are left out."""
    kinds = {axis: {"kind": kind} for axis, kind in {**DEFAULTS, **combination, "optimizer": "adam"}.items()}
    options = _needed_options(_with(kinds))
    return {axis: {**kinds[axis], **options.get(axis, {})} for axis in kinds if axis in combination or axis in options}


def _needed_options(scenario: Scenario) -> Settings:
    """Return the options that the techniques of ``scenario``, otherwise at their defaults, need to be combined."""
    options: Settings = {}
    afterwards = pushed(scenario) is not Contribution.GRADIENT or scenario.sync.tier1.declared.lags
    if afterwards and overlaps(scenario):
        options["order"] = {"overlap": "none"}
    if scenario.order.declared.best_effort and pushed(scenario) is Contribution.MODEL:
        options["order"] = {"late": "retransmit"}
    relays = scenario.overlay.tier2.declared.relays
    waits = scenario.sync.tier2.declared.waits
    can_be_summed = scenario.codec.tier2.declared.dense and scenario.aggregation.tier2.declared.sums
    if relays and not (can_be_summed and (waits or not scenario.overlay.tier2.declared.routes)):
        options["overlay"] = {"merge": "exact"}
    if scenario.paradigm.declared.models and (
        plain := scenario.codec.tier2.declared.to_add_up(scenario.codec.tier2.options)
    ):
        options["codec"] = plain
    counter = lan_rounds_option(scenario.sync.tier2)
    if tiers_of(scenario) == 1 and counter:
        options["sync"] = {counter: 1}
    return options


def needed(combination: Combination) -> tuple[str, ...]:
    """Return the options of ``settings`` as texts such as ``order.late=retransmit``."""
    return tuple(
        f"{axis}.{option}={value}"
        for axis, options in settings(combination).items()
        for option, value in options.items()
        if option != "kind"
    )


def overrides(combination: Combination) -> list[str]:
    """Return ``settings`` as texts for ``--set``."""
    return [*(f"{axis}={kind}" for axis, kind in combination.items()), *needed(combination)]


def _with(texts: Mapping[str, Any]) -> Scenario:
    """Return the base scenario of the matrix with these techniques, given as a scenario would write them."""
    return replace(_base(), **{axis: _section(axis, json.dumps(value)) for axis, value in texts.items()})


@cache
def _section(axis: str, value: str) -> Any:
    """Return an immutable section from its JSON; cached, as thousands of combinations use the same few sections."""
    return _adapter(axis).validate_python(json.loads(value))


@cache
def _base() -> Scenario:
    return loads(_BASE)


@cache
def _adapter(axis: str) -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[Any, of_axis(axis, tiers=axis in _WITH_TIERS)])


_WITH_TIERS = [field.name for field in fields(Scenario) if "tiers" in field.metadata]
Kinds = dict[str, list[str]]  # by axis


def markdown(cells: Iterable[Cell]) -> str:
    """Return the whole matrix, as it stands in scenarios/README.md."""
    cells = list(cells)
    reasons = list(dict.fromkeys(cell.refused for cell in cells if cell.refused))
    marks = {reason: chr(ord("a") + number) for number, reason in enumerate(reasons)}
    works = sum(cell.refused is None for cell in cells)
    head = f"{works} of {len(cells)} pairs work, and so does any combination of such pairs. The others are refused:"
    notes = [f"* ({mark}) {reason}" for reason, mark in marks.items()]
    table = _table(cells, marks)
    return "\n".join([head, "", *table, "", *_left_out(), "", *notes, "", *_needs(cells), "", *_tiers()]) + "\n"


def _left_out() -> list[str]:
    """Return, for each paradigm without a row, why it has none."""
    libraries = ", ".join(f"`{kind}`" for kind, each in PARADIGMS.shipped.items() if each.library)
    cuts = ", ".join(f"`{kind}`" for kind, each in PARADIGMS.shipped.items() if each.cuts_models)
    return [
        f"A {cuts} goes with what the paradigm of its `replicas` goes with, except what it refuses itself "
        f"(docs/how-to/pipelines.md). {libraries} works only with the defaults of the other axes."
    ]


def _table(cells: list[Cell], marks: dict[str, str]) -> list[str]:
    refused: dict[tuple[str, str, str], Kinds] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        if cell.refused:
            for mine, other in ((0, 1), (1, 0)):
                at = (cell.axes[mine], cell.kinds[mine], cell.axes[other])
                refused[at][marks[cell.refused]].append(cell.kinds[other])
    rows = [f"| | {' | '.join(AXES)} |", "|---" * (len(AXES) + 1) + "|"]
    for axis, kinds in AXES.items():
        for kind in kinds:
            texts = ["" if other == axis else _cell(refused[axis, kind, other]) for other in AXES]
            rows.append(f"| {axis} `{kind}` | {' | '.join(texts)} |")
    return rows


def _cell(refused: Kinds) -> str:
    texts = [f"{', '.join(kinds)} ({mark})" for mark, kinds in refused.items()]
    return f"not {'; '.join(texts)}" if texts else "all"


def _needs(cells: list[Cell]) -> list[str]:
    """Return the lines about values and pairs that need further settings."""
    alone: dict[str, list[str]] = defaultdict(list)
    for axis, kinds in AXES.items():
        for kind in kinds:
            for need in needed({axis: kind}):
                alone[need].append(f"`{kind}`")
    together: dict[tuple[str, str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        for need in set(cell.needs) - set(alone):
            together[need, *cell.axes][cell.kinds[0]].append(cell.kinds[1])
    lines = [f"* `{need}`: {', '.join(kinds)}" for need, kinds in alone.items()]
    for (need, *_), pairs in sorted(together.items()):
        joined: dict[str, list[str]] = defaultdict(list)
        for first, second in pairs.items():
            joined[", ".join(f"`{kind}`" for kind in second)].append(f"`{first}`")
        lines += [f"* `{need}`: {', '.join(first)} with {second}" for second, first in joined.items()]
    return ["Some pairs need a setting besides:", "", *lines]


def _tiers() -> list[str]:
    """Return the lines that say which algorithms on tier 2 go with which on tier 1."""
    lines = []
    for below in AXES["sync"]:
        above = [kind for kind in AXES["sync"] if not tier_refusals(below, kind)]
        if above:
            lines.append(f"* `{below}` below {', '.join(f'`{kind}`' for kind in above)}")
    return ["Synchronisation, tier 1 below tier 2 (codecs and overlays of the two tiers are free):", "", *lines]


def tier_refusals(tier1: str, tier2: str) -> list[str]:
    """Return why ``sync: {tier1: …, tier2: …}`` is refused."""
    sync = {"tier1": {"kind": tier1}, "tier2": {"kind": tier2}}
    return refusals({"paradigm": DEFAULTS["paradigm"], "sync": tier1}, {"sync": sync})
