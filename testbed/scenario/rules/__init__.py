"""Rules over a whole scenario: every public function of these modules, for the validator, tests and ``testbed matrix``.

A rule is a function that returns the violations in a scenario, each with place, reason and cure. Its condition uses
the declarations of techniques, never their names.
"""

from __future__ import annotations

from types import FunctionType

from testbed.scenario.pipeline import exchanging as exchanging_part
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules import (
    aggregation,
    cluster,
    job,
    limits,
    paradigms,
    pipelines,
    programs,
    recovery,
    synchronisation,
    traces,
    transfer,
)
from testbed.scenario.rules.facts import Rule
from testbed.scenario.schema import Scenario

_MODULES = (
    recovery,
    paradigms,
    pipelines,
    transfer,
    synchronisation,
    aggregation,
    job,
    programs,
    traces,
    limits,
    cluster,
)
RULES: tuple[Rule, ...] = tuple(
    function
    for module in _MODULES
    for name, function in vars(module).items()
    if isinstance(function, FunctionType) and function.__module__ == module.__name__ and not name.startswith("_")
)

# these rules check a pipeline itself; all others check the paradigm by which the replicas of its stages exchange
_OF_PIPELINES = {rule for rule in RULES if rule.__module__ == pipelines.__name__} | {job.steps_are_computed_here}


def violations_of(scenario: Scenario) -> list[Violation]:
    """Return the violations of all rules in a scenario, on its back end.

    A value that does not go with a pipeline is refused only once, as a second message could suggest another cure.
    """
    exchanging = exchanging_part(scenario)
    if exchanging is scenario:
        return [violation for rule in RULES for violation in rule(scenario)]
    of_pipelines = [violation for rule in RULES if rule in _OF_PIPELINES for violation in rule(scenario)]
    told = {violation.at for violation in of_pipelines}
    others = [_in_replicas(each) for rule in RULES if rule not in _OF_PIPELINES for each in rule(exchanging)]
    return of_pipelines + [violation for violation in others if violation.at not in told]


def _in_replicas(violation: Violation) -> Violation:
    """Return the violation with its place moved to where a pipeline has the paradigm of its replicas."""
    section, *inside = violation.at
    return violation._replace(at=("paradigm", "replicas", *inside)) if section == "paradigm" else violation
