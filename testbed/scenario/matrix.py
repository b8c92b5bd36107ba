"""The composition matrix: which value of one axis goes with which value of another.

Nothing is decided here: the verdicts are those of ``testbed.scenario.compatibility``, asked pair by pair. What is
written here is what a pair needs beside itself (``settings``), such as where the optimizer runs under HFA.
``testbed matrix`` prints the result, and a test holds scenarios/README.md to it. Cells are run in virtual time, so
paradigms that it cannot see (``virtual = False``: other libraries' all-reduce) have none; they go with defaults only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

from pydantic import TypeAdapter

from testbed.codec.options import CODECS
from testbed.policy.events import Contribution
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.shard import SHARDS
from testbed.policy.sync import SYNC
from testbed.scenario.compatibility import technique_problems
from testbed.scenario.load import loads
from testbed.scenario.paradigms import PARADIGMS
from testbed.scenario.schema import Scenario

AXES: dict[str, tuple[str, ...]] = {
    "paradigm": tuple(kind for kind, entry in PARADIGMS.items() if getattr(entry, "virtual", True)),
    "sync": tuple(SYNC),
    "codec": tuple(CODECS),
    "order": tuple(ORDERS),
    "overlay": tuple(OVERLAYS),
    "shard": tuple(SHARDS),
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
    """A value on one axis with a value on another: what they need beside them, and why they are refused, if so."""

    axes: tuple[str, str]
    kinds: tuple[str, str]
    needs: tuple[str, ...]
    refused: str | None

    @property
    def combination(self) -> Combination:
        """The kinds by axis."""
        return dict(zip(self.axes, self.kinds, strict=True))


def cells() -> Iterator[Cell]:
    """Every pair of values on two different axes."""
    for axes in combinations(AXES, 2):
        for first in AXES[axes[0]]:
            for second in AXES[axes[1]]:
                combination = {axes[0]: first, axes[1]: second}
                reasons = refusals(combination)
                needs = () if reasons else needed(combination)
                yield Cell(axes, (first, second), needs, reasons[0] if reasons else None)


def refusals(combination: Combination, instead: Mapping[str, Any] | None = None) -> list[str]:
    """Why a scenario with this combination, and with what it needs, is refused; nothing if it is not.

    ``instead``: what is written on some axes, where the two tiers differ.
    """
    texts = {**settings(combination), **(instead or {})}
    written = {axis: _adapter(axis).validate_python(value) for axis, value in texts.items()}
    return [found.problem for found in technique_problems(_base().model_copy(update=written))]


def settings(combination: Combination) -> Settings:
    """What a scenario writes for it, what it needs beside it included. Values that are defaults are left out."""
    chosen = {**DEFAULTS, **combination}
    options: Settings = {axis: {} for axis in chosen}
    pushed = SYNC[chosen["sync"]].contribution
    if pushed is not Contribution.GRADIENT:
        options["optimizer"] = {"at": "worker"}
        if chosen["order"] == "p3":
            options["order"]["overlap"] = "none"
    if chosen["order"] == "dgt" and pushed is Contribution.MODEL:
        options["order"]["late"] = "retransmit"
    if chosen["overlay"] != "star" and chosen["codec"] not in ("none", "fp16"):
        options["overlay"]["merge"] = "exact"
    if chosen["paradigm"] == "ps" and chosen["sync"] == "hfa":
        options["sync"]["k2"] = 1
    kinds = {**chosen, "optimizer": "adam"}
    return {axis: {"kind": kinds[axis], **extra} for axis, extra in options.items() if extra or axis in combination}


def needed(combination: Combination) -> tuple[str, ...]:
    """The options of ``settings``: ``order.late=retransmit``."""
    return tuple(
        f"{axis}.{option}={value}"
        for axis, options in settings(combination).items()
        for option, value in options.items()
        if option != "kind"
    )


def overrides(combination: Combination) -> list[str]:
    """``settings`` as ``--set`` takes it."""
    return [*(f"{axis}={kind}" for axis, kind in combination.items()), *needed(combination)]


def filled(combination: Combination, rng: random.Random, wanted: Callable[[Combination], int] = len) -> Combination:
    """With a value on every axis, drawn so that nothing is refused; of those the first that ``wanted`` likes best."""
    full = dict(combination)
    for axis in rng.sample(list(AXES), len(AXES)):
        if axis not in full:
            kinds = rng.sample(AXES[axis], len(AXES[axis]))
            options = [full | {axis: kind} for kind in kinds if not refusals(full | {axis: kind})]
            full = max(options, key=wanted)
    return {axis: full[axis] for axis in AXES}


def pairs_of(combination: Combination) -> set[tuple[tuple[str, str], tuple[str, str]]]:
    """The cells that a combination is an example of."""
    return {((one, combination[one]), (other, combination[other])) for one, other in combinations(combination, 2)}


def covering(seed: int) -> list[Combination]:
    """Full combinations in which every cell that works occurs: pairwise testing, chosen greedily."""
    rng = random.Random(seed)
    left = {pair for cell in cells() if cell.refused is None for pair in pairs_of(cell.combination)}
    rows: list[Combination] = []

    def news(row: Combination) -> int:
        return len(pairs_of(row) & left)

    while left:
        rows.append(filled(dict(rng.choice(sorted(left))), rng, news))
        left -= pairs_of(rows[-1])
    return rows


@cache
def _base() -> Scenario:
    return loads(_BASE)


@cache
def _adapter(axis: str) -> TypeAdapter[Any]:
    return TypeAdapter(Scenario.model_fields[axis].rebuild_annotation())
