"""Rules of partial pull: what embedding tables that travel by rows go with."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.policy.events import Contribution
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.sync import SYNC
from testbed.scenario.paradigms import PARADIGMS
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import (
    Found,
    by_tier,
    kinds,
    pulls_rows,
    pushed,
    tiers_of,
    updates_on_workers,
    without_memory,
)
from testbed.scenario.schema import Scenario
from testbed.training.options import LOADINGS, MODELS

_AT = ("paradigm", "pull")
_WHOLE = "or 'pull: all'"


def rows_are_pulled_where_few_are_needed(scenario: Scenario) -> Found:
    for problem, cure in _unfit(scenario) if pulls_rows(scenario) else ():
        yield Violation(_AT, f"'rows': {problem}", f"write {cure}, {_WHOLE}")


def _unfit(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield problem and cure."""
    training = scenario.training
    if not training.model.declared.tables:
        problem = f"'{training.model.kind}' declares no embedding tables, so that a batch needs every parameter"
        yield problem, f"model: {kinds(MODELS, lambda model: model.tables)}"
    elif training.compute == "modelled":
        yield "which rows a batch needs follows from samples, and nothing is computed here", "'compute: real'"
    elif training.loading.declared.loads:
        problem = "workers say which rows the next batch needs before that batch is loaded"
        yield problem, f"loading: {kinds(LOADINGS, lambda loading: not loading.loads)}"
    yield from _of_transfer(scenario)
    if pushed(scenario) is not Contribution.GRADIENT or updates_on_workers(scenario):
        problem = "an optimizer on every worker needs all rows: it changes also those that no batch of that worker uses"
        first = kinds(SYNC, lambda sync: sync.contribution is Contribution.GRADIENT)
        yield problem, f"sync: {first}, with 'optimizer: {{at: global}}'"
    elif tiers_of(scenario) == 2 and not scenario.sync.tier1.declared.waits:
        problem = (
            "a local server asks for the rows of all its workers at once, and here they do not wait for each other"
        )
        one_tier = kinds(PARADIGMS, lambda paradigm: paradigm.tiers == 1)
        yield problem, f"'tier1: {SYNC.default}', paradigm: {one_tier}"
    if scenario.recovery.on_failure == "continue":
        problem = "a node that comes back takes values from servers that hold rows of different rounds"
        yield problem, "on_failure: restart or abort"


def _of_transfer(scenario: Scenario) -> Iterator[tuple[str, str]]:
    if any(codec.declared.has_memory for _, codec in by_tier(scenario.codec)):
        problem = "a codec that remembers what it has sent of a tensor meets other rows in each round"
        yield problem, f"codec: {without_memory()}"
    if any(overlay.declared.relays for _, overlay in by_tier(scenario.overlay)):
        problem = "a relay passes on one value to all, and each asks for rows of its own"
        yield problem, f"overlay: {kinds(OVERLAYS, lambda overlay: not overlay.relays)}"
    if scenario.order.declared.best_effort:
        problem = "blocks that may be lost hold the same elements in every round, and rows change"
        yield problem, f"order: {kinds(ORDERS, lambda order: not order.best_effort)}"
