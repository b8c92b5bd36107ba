"""Check a scenario: every problem with file, line and column. Creates nothing."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from testbed.cli.options import Outcome, add_scenario, read_plan
from testbed.numbers import seconds

HELP = "check a scenario, and report every problem"
add_arguments = add_scenario


def execute(arguments: argparse.Namespace) -> Outcome:
    from testbed.execution import capacity
    from testbed.launch import check_before_training
    from testbed.plan.asynchronous import shares_rounds

    scenario, plan = read_plan(arguments)
    check_before_training(scenario, plan)
    warnings = [*plan.warnings, *capacity.warnings(plan)]
    if arguments.json:
        facts = {"kind": "valid", "name": plan.name, "back_end": plan.back_end, "nodes": len(plan.nodes)}
        return {**facts, "warnings": warnings, "traces": [asdict(trace) for trace in scenario.traces]}
    sites = len(plan.network.sites)
    notes = f", {len(warnings)} {'note' if len(warnings) == 1 else 'notes'}" if warnings else ""
    print(f"{arguments.scenario}: valid ({sites} data centres, {len(plan.nodes)} nodes, on {plan.back_end}{notes})")
    for trace in scenario.traces:
        unit = f", in {trace.unit}" if trace.unit else ""
        print(
            f"  trace {trace.name}: {trace.what}, {trace.format} ({trace.how}), {trace.samples} samples, "
            f"{seconds(trace.length_s)}{unit}{''.join(f'; {note}' for note in trace.notes)}"
        )
    if shares_rounds(plan):
        print(f"  rounds: {plan.training.rounds} per worker on the mean: fast ones make more, as none waits for all")
    for warning in warnings:
        print(f"  note: {warning}")
    return 0
