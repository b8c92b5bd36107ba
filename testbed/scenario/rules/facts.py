"""Facts about a scenario that rules need, derived from the declarations of its techniques."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from testbed.axes import Axis, options_of
from testbed.codec.options import CODECS, ROWS
from testbed.policy.events import Contribution
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.scenario.reading.axes import TIERS, Technique
from testbed.scenario.reading.violations import Violation
from testbed.scenario.schema import Scenario
from testbed.training.options import OPTIMIZERS
from testbed.training.options.declarations import SCRIPT
from testbed.training.options.optimizers import AUTO

Found = Iterator[Violation]
Rule = Callable[[Scenario], Found]


def kinds(table: Axis[Any], fits: Callable[[type[Any]], object]) -> str:
    """Return the kinds whose class ``fits``, for a hint: ``'fsa, bsp or hfa'``."""
    *others, last = table.where(fits)
    return f"{', '.join(others)} or {last}" if others else last


def without_memory() -> str:
    """Return the codecs that keep nothing between rounds, for a hint."""
    return kinds(CODECS, lambda codec: not codec.has_memory)


def without_relays() -> str:
    """Return the overlays that keep nothing at nodes, for a hint."""
    return f"overlay: {kinds(OVERLAYS, lambda overlay: not overlay.relays)}"


def reliable() -> str:
    """Return the orders with which every message arrives, for a hint."""
    return kinds(ORDERS, lambda order: not order.best_effort)


def without_servers(scenario: Scenario) -> bool:
    return tiers_of(scenario) == 0


def tiers_of(scenario: Scenario) -> int:
    tiers: int = scenario.paradigm.declared.tiers
    return tiers


def pushed(scenario: Scenario) -> Contribution:
    """Return what workers push: the algorithm on tier 1 decides."""
    contribution: Contribution = scenario.sync.tier1.declared.contribution
    return contribution


def optimizer_place(scenario: Scenario) -> str:
    """Return where the optimizer runs: ``global`` or ``worker``. The techniques' declarations resolve ``auto``.

    It is empty for a user's own optimizer without the option ``at``. An optimizer for servers only stays there.
    """
    options = scenario.optimizer.options
    place: str = getattr(options, "at", "")
    if place != AUTO:
        return place
    places = places_of(scenario.optimizer.declared)
    on_workers = _needs_workers(scenario) or ("global" not in places and tiers_of(scenario) > 0)
    return "worker" if on_workers and "worker" in places else "global"


def _needs_workers(scenario: Scenario) -> bool:
    """Return whether workers must run the optimizer: for local steps, or if sums of sparse gradients come down."""
    if tiers_of(scenario) == 0 or is_scripted(scenario):
        return False  # it runs on the workers anyway, or the script has its own
    faced = scenario.sync.tier2 if tiers_of(scenario) == 1 else scenario.sync.tier1
    if faced.declared.contribution is not Contribution.GRADIENT:
        return True
    waits = all(tier.declared.waits for _, tier in scenario.sync)
    return waits and "sparse-sum" in pulls_of(scenario).values()


def outer_of(scenario: Scenario) -> tuple[str, Any] | None:
    """Return kind and options of the outer optimizer; ``None`` if the mean of models' changes is applied unchanged.

    It is that of the scenario, or the one that the workers' synchronisation algorithm declares.
    """
    if scenario.outer_optimizer is not None:
        return scenario.outer_optimizer.kind, scenario.outer_optimizer.options
    sync = scenario.sync.tier1
    declared = sync.declared.outer_optimizer(sync.options)
    return None if declared is None else (declared[0], OPTIMIZERS.options(*declared))


def places_of(optimizer: type[Any]) -> tuple[str, ...]:
    """Return the places at which an optimizer can run, ``auto`` among them."""
    choices = {option.name: option.metadata.get("choices", ()) for option in fields(options_of(optimizer))}
    return tuple(choices.get("at", ()))


def updates_on_workers(scenario: Scenario) -> bool:
    return optimizer_place(scenario) == "worker"


def sums_inside_data_centers(scenario: Scenario) -> bool:
    """Return whether workers without servers have rounds inside their data centre, whose sums use the codec of tier 1.

    If a paradigm has no sum over all workers, one codec serves every round.
    """
    sync = scenario.sync.tier1
    paradigm = scenario.paradigm.declared
    has_codecs = paradigm.codecs and paradigm.global_sum
    return bool(tiers_of(scenario) == 0 and has_codecs and sync.declared.lan_rounds(sync.options) > 1)


def pulls_rows(scenario: Scenario) -> bool:
    return bool(getattr(scenario.paradigm.options, "pull", "") == ROWS)


def overlaps(scenario: Scenario) -> bool:
    """Return whether layers are sent while other layers are still being computed."""
    return bool(scenario.order.declared.overlaps(scenario.order.options))


def is_scripted(scenario: Scenario) -> bool:
    return bool(scenario.training.model.declared.takes == SCRIPT)


def pulls_of(scenario: Scenario) -> dict[str, str]:
    """Return how values are sent back on each tier: one of ``testbed.codec.options.PULLS``."""
    tiers = TIERS if tiers_of(scenario) == 2 else TIERS[1:]
    codecs = {tier: getattr(scenario.codec, tier) for tier in tiers}
    return {tier: codec.declared.pull_on(codec.options, TIERS.index(tier) + 1) for tier, codec in codecs.items()}


def tiers_of_differences(scenario: Scenario) -> list[str]:
    """Return the tiers whose codecs send down the largest differences from members' values (``pull: difference``)."""
    return [tier for tier, pull in pulls_of(scenario).items() if pull == "difference"]


def lan_rounds_option(technique: Technique) -> str:
    """Return the option that counts rounds inside a data centre; with the value 1, every round crosses the WAN.

    It is empty if every round crosses the WAN already.
    """
    declared = technique.declared
    options = technique.options
    if declared.lan_rounds(options) == 1:
        return ""
    counts = [field.name for field in fields(options) if type(getattr(options, field.name)) is int]
    return next((name for name in counts if declared.lan_rounds(replace(options, **{name: 1})) == 1), "")
