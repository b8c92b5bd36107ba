"""Check a scenario: every problem with file, line and column. Creates nothing."""

from __future__ import annotations

import argparse

from testbed.cli.options import Outcome, add_scenario, check_data, read_plan
from testbed.errors import ScenarioError

HELP = "check a scenario, and report every problem"
add_arguments = add_scenario


def execute(arguments: argparse.Namespace) -> Outcome:
    _, plan = read_plan(arguments)
    warnings = list(plan.warnings)
    try:
        check_data(plan)
    except ScenarioError as error:  # only a warning: the data may be on the machine that runs the scenario
        warnings.append(error.problems[0])
    if arguments.json:
        facts = {"kind": "valid", "name": plan.name, "back_end": plan.back_end, "nodes": len(plan.nodes)}
        return {**facts, "warnings": warnings}
    sites = len(plan.network.sites)
    print(f"{arguments.scenario}: valid ({sites} data centres, {len(plan.nodes)} nodes, on {plan.back_end})")
    for warning in warnings:
        print(f"  warning: {warning}")
    return 0
