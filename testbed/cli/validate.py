"""Check a scenario: every problem with file, line and column. Creates nothing."""

from __future__ import annotations

import argparse

from testbed.cli.options import Outcome, add_scenario, read_plan

HELP = "check a scenario, and report every problem"
add_arguments = add_scenario


def execute(arguments: argparse.Namespace) -> Outcome:
    _, plan = read_plan(arguments)
    if arguments.json:
        facts = {"kind": "valid", "name": plan.name, "back_end": plan.back_end, "nodes": len(plan.nodes)}
        return {**facts, "warnings": list(plan.warnings)}
    sites = len(plan.network.sites)
    print(f"{arguments.scenario}: valid ({sites} data centres, {len(plan.nodes)} nodes, on {plan.back_end})")
    for warning in plan.warnings:
        print(f"  warning: {warning}")
    return 0
