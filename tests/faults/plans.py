"""Plans of schedules, quickly: what a technique's scenario says is read and validated once, and then used for all.

A schedule differs from the calm run of its technique in ``faults``, ``recovery`` and ``checkpoint`` only. These are
made anew, the rules that look at them are asked again, and the Plan is that of the whole text, byte for byte
(``tests/faults/test_search.py`` compares them).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.effects import slowed, with_faults
from testbed.plan.faults import build_faults, refuse_late_faults
from testbed.plan.model import Plan
from testbed.plan.timeouts import derive
from testbed.plan.warnings import warnings_for
from testbed.scenario import Scenario
from testbed.scenario.load import load
from testbed.scenario.reading.declared import read
from testbed.scenario.reading.document import parse, plain
from testbed.scenario.rules import violations_of
from testbed.settings.faults import Fault
from testbed.settings.run import Checkpoints, Recovery
from tests.engine.runs import THREE_SITES
from tests.faults.runs import JOB

Texts = tuple[str, ...]


def quick_plan(calm: Texts, faults: Texts, recovery: Recovery, every: int) -> Plan:
    """The Plan of the job ``calm`` with faults and the rest. Raises ``ScenarioError`` as the whole text would."""
    written: dict[str, Any] = {
        "faults": tuple(map(_fault, faults)),
        "recovery": recovery,
        "checkpoint": Checkpoints(every=every),
    }
    scenario = replace(_scenario(calm), **written)
    problems = violations_of(scenario)
    if problems:
        raise ScenarioError([str(problem) for problem in problems])
    plan = _calm_plan(calm, recovery.replicas)
    found = build_faults(scenario, plan.network, plan.nodes)
    timeouts = derive(scenario, plan.network, plan.nodes, plan.training, found)
    refuse_late_faults(scenario, timeouts.run_deadline_s)
    nodes, network = slowed(plan.nodes, found), with_faults(plan.network, found)
    warnings = warnings_for(scenario, network, nodes, plan.training, plan.simulation)
    return replace(
        plan,
        nodes=nodes,
        network=network,
        faults=found,
        warnings=warnings,
        timeouts=timeouts,
        recovery=scenario.recovery,
        checkpoint_every=every,
    )


def recovery_of(policy: str, on_nan: str, replicas: int) -> Recovery:
    """As a schedule's text says it."""
    restarts = {"restart_delay_s": 0.1, "max_restarts": 9} if policy == "restart" else {}
    return Recovery(on_failure=policy, on_nan=on_nan, replicas=replicas, **restarts)


@cache
def _scenario(calm: Texts) -> Scenario:
    return replace(load(THREE_SITES, (*JOB, *calm)), origin=None)  # that of the file, where the faults are not


@cache
def _calm_plan(calm: Texts, replicas: int) -> Plan:
    recovery = Recovery(on_failure="continue" if replicas else "abort", replicas=replicas)
    return build_plan(replace(_scenario(calm), recovery=recovery), "simulate")


def _fault(text: str) -> Fault:
    return read(Fault, plain(parse(f"{{{text}}}", "a fault")))
