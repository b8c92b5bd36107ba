"""What rules ask of a scenario, in terms of its techniques' declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from testbed.axes import Axis
from testbed.codec.options import CODECS, ROWS
from testbed.policy.events import Contribution
from testbed.scenario.paradigms import PARADIGMS
from testbed.scenario.reading.axes import TIERS, PerTier, Technique
from testbed.scenario.reading.violations import Violation
from testbed.scenario.schema import Scenario
from testbed.training.options.declarations import SCRIPT

Found = Iterator[Violation]
Rule = Callable[[Scenario], Found]


def kinds(table: Axis[Any], fits: Callable[[type[Any]], object]) -> str:
    """Return the kinds whose class ``fits``, for a hint: ``'fsa, bsp or hfa'``."""
    *others, last = table.where(fits)
    return f"{', '.join(others)} or {last}" if others else last


def without_memory() -> str:
    """Return the codecs that keep nothing between rounds, for a hint."""
    return kinds(CODECS, lambda codec: not codec.has_memory)


def with_servers() -> str:
    """Return the paradigms of parameter servers, for a hint."""
    return kinds(PARADIGMS, lambda paradigm: paradigm.tiers)


def without_servers(scenario: Scenario) -> bool:
    """Return whether workers exchange with each other."""
    return tiers_of(scenario) == 0


def tiers_of(scenario: Scenario) -> int:
    """Return the number of tiers of servers."""
    tiers: int = scenario.paradigm.declared.tiers
    return tiers


def pushed(scenario: Scenario) -> Contribution:
    """Return what workers push: the algorithm on tier 1 decides."""
    contribution: Contribution = scenario.sync.tier1.declared.contribution
    return contribution


def updates_on_workers(scenario: Scenario) -> bool:
    """Return whether every worker runs the optimizer."""
    return bool(getattr(scenario.optimizer.options, "at", "") == "worker")


def sums_come_down(scenario: Scenario) -> bool:
    """Return whether workers receive sums of gradients for an optimizer of their own, not parameters."""
    waits = scenario.sync.tier1.declared.waits
    return bool(updates_on_workers(scenario) and waits and pushed(scenario) is Contribution.GRADIENT)


def sums_inside_data_centers(scenario: Scenario) -> bool:
    """Return whether workers without servers have rounds inside their data centre, whose sums the codec of tier 1 has.

    Where they have no sum over all of them, one codec is that of every round.
    """
    sync, paradigm = scenario.sync.tier1, scenario.paradigm.declared
    has_codecs = paradigm.codecs and paradigm.global_sum
    return bool(tiers_of(scenario) == 0 and has_codecs and sync.declared.lan_rounds(sync.options) > 1)


def pulls_rows(scenario: Scenario) -> bool:
    """Return whether embedding tables travel by rows."""
    return bool(getattr(scenario.paradigm.options, "pull", "") == ROWS)


def overlaps(scenario: Scenario) -> bool:
    """Return whether a layer is sent while others are being computed."""
    return bool(scenario.order.declared.overlaps(scenario.order.options))


def is_scripted(scenario: Scenario) -> bool:
    """Return whether a user's script trains."""
    return bool(scenario.training.model.declared.takes == SCRIPT)


def by_tier(per_tier: PerTier) -> list[tuple[str, Technique]]:
    """Return the techniques of both tiers with the keys under which they stand."""
    return [(tier, getattr(per_tier, tier)) for tier in TIERS]


def techniques_of(scenario: Scenario) -> Iterator[tuple[tuple[str, ...], Technique]]:
    """Yield every technique with its place."""
    for prefix, section in ((), scenario), (("training",), scenario.training):
        for key, value in section:
            if isinstance(value, Technique):
                yield (*prefix, key), value
            elif isinstance(value, PerTier):
                yield from (((*prefix, key, tier), technique) for tier, technique in by_tier(value))


def lan_rounds_option(technique: Technique) -> str:
    """Return the option that counts rounds inside a data centre: with 1 there, every round crosses the WAN.

    Empty when every round does so already.
    """
    declared, options = technique.declared, technique.options
    if declared.lan_rounds(options) == 1:
        return ""
    counts = [field.name for field in fields(options) if type(getattr(options, field.name)) is int]
    return next((name for name in counts if declared.lan_rounds(replace(options, **{name: 1})) == 1), "")
