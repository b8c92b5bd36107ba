"""Rules over a whole scenario: one table, read by the validator, the tests and ``testbed matrix``.

A rule is a function from a scenario to violations: a condition over what techniques declare, with the place, the
reason and the cure. No rule tests for the name of a technique.
"""

from __future__ import annotations

from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules import job, limits, recovery, serverless, synchronisation, transfer
from testbed.scenario.rules.facts import Rule
from testbed.scenario.schema import Scenario

RULES: tuple[Rule, ...] = (
    *recovery.RULES,
    *serverless.RULES,
    *transfer.RULES,
    *synchronisation.RULES,
    *job.RULES,
    *limits.RULES,
)


def violations_of(scenario: Scenario) -> list[Violation]:
    """Return what the rules find in a scenario, on its back end."""
    return [found for rule in RULES for found in rule(scenario)]
