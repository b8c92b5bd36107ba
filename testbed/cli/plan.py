"""Print the Plan that a scenario expands to: every node, address, link, trace and timeout. Creates nothing."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from testbed.cli.options import Outcome, add_scenario, read_plan
from testbed.display import look
from testbed.errors import ScenarioError
from testbed.numbers import MISSING, counted

if TYPE_CHECKING:
    from testbed.plan.model import Plan

HELP = "print the Plan that a scenario expands to"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument("--table", action="store_true", help="nodes and links as tables, instead of JSON")


def execute(arguments: argparse.Namespace) -> Outcome:
    from testbed.plan.model import to_json

    if arguments.table and arguments.json:
        raise ScenarioError("--table: has no effect with --json; leave one of them out")
    _, plan = read_plan(arguments)
    if not arguments.table:
        print(to_json(plan).decode())
        return 0
    console = look.console()
    console.print(_nodes(plan), _links(plan))
    for warning in plan.warnings:
        console.print(f"warning: {warning}")
    return 0


def _nodes(plan: Plan) -> Any:
    rows = [
        (
            node.name,
            node.role,
            ", ".join(node.parents) or MISSING,
            f"{node.address}:{node.port}" if node.address else MISSING,
        )
        for node in plan.nodes
    ]
    return look.table(f"{plan.title}: nodes", "node", "role", "pushes to", "address", rows=rows)


def _links(plan: Plan) -> Any:
    from testbed.units import format_duration, format_rate, format_share, format_size

    rows = []
    for link in plan.network.links:
        trace = link.rate_trace
        points = f"{counted(len(trace.values), 'point')}, {trace.source}" if trace else MISSING
        rows.append(
            (
                link.name,
                format_rate(link.rate_bps),
                format_duration(link.delay_s),
                format_size(link.queue_bytes),
                format_share(link.loss),
                points,
            )
        )
    return look.table("WAN links", "link", ">rate", ">one-way delay", ">queue", ">loss", "rate trace", rows=rows)
