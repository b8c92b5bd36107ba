"""Check a scenario: every problem with file, line and column. Creates nothing."""

from __future__ import annotations

import argparse
import json

from testbed.cli.options import add_scenario

HELP = "check a scenario, and report every problem"
add_arguments = add_scenario


def execute(arguments: argparse.Namespace) -> int:
    from testbed.cli.options import read_plan

    _, plan = read_plan(arguments)
    if arguments.json:
        facts = {"kind": "valid", "name": plan.name, "back_end": plan.back_end, "nodes": len(plan.nodes)}
        print(json.dumps({**facts, "warnings": list(plan.warnings)}))
        return 0
    sites = len(plan.network.sites)
    print(f"{arguments.scenario}: valid ({sites} data centres, {len(plan.nodes)} nodes, on {plan.back_end})")
    for warning in plan.warnings:
        print(f"  warning: {warning}")
    return 0
