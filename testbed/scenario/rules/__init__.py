"""Rules over a whole scenario: every public function of these modules, for the validator, tests and ``testbed matrix``.

A rule is a function from a scenario to violations: a condition over what techniques declare, with the place, the
reason and the cure. No rule tests for the name of a technique.
"""

from __future__ import annotations

from types import FunctionType

from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules import (
    aggregation,
    cluster,
    job,
    limits,
    paradigms,
    programs,
    recovery,
    synchronisation,
    traces,
    transfer,
)
from testbed.scenario.rules.facts import Rule
from testbed.scenario.schema import Scenario

_MODULES = (recovery, paradigms, transfer, synchronisation, aggregation, job, programs, traces, limits, cluster)
RULES: tuple[Rule, ...] = tuple(
    function
    for module in _MODULES
    for name, function in vars(module).items()
    if isinstance(function, FunctionType) and function.__module__ == module.__name__ and not name.startswith("_")
)


def violations_of(scenario: Scenario) -> list[Violation]:
    """Return what the rules find in a scenario, on its back end."""
    return [found for rule in RULES for found in rule(scenario)]
