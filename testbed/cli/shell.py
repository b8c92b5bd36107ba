"""Bring a scenario's network up and work in it: inspect, measure, change links, run any program in any node.

`testbed shell SCENARIO` reads commands (try 'help'); `testbed shell SCENARIO --in NODE -- COMMAND…` runs one program
in a node, behind the scenario's links, and ends with its exit status. Nothing is trained, and no files are left.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from testbed.cli.options import add_scenario, read_scenario
from testbed.errors import ScenarioError

if TYPE_CHECKING:
    from emulation.sandbox import Sandbox
    from testbed.plan.model import Plan

HELP = "bring a network up and run programs in it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument("--in", dest="node", metavar="NODE",
                        help="run one command in this node; write '-- COMMAND' at the end of the line")  # fmt: skip


def execute(arguments: argparse.Namespace) -> int:
    from emulation.probe import probe
    from testbed.plan.build import build_plan

    if arguments.on not in (None, "emulate"):
        raise ScenarioError(f"--on {arguments.on}: a shell works in an emulated network only")
    if (arguments.node is None) != (not arguments.command):
        raise ScenarioError(
            "--in: write --in NODE -- COMMAND, with the command after two dashes at the end of the line"
        )
    plan = build_plan(read_scenario(arguments), "emulate")
    names = [node.name for node in plan.nodes]
    if arguments.node is not None and arguments.node not in names:
        raise ScenarioError(f"--in: no node '{arguments.node}'; nodes: {', '.join(names)}")
    for warning in plan.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    probe().require_emulation()
    return _run(plan, [arguments.node, *arguments.command] if arguments.command else [])


def _run(plan: Plan, command: list[str]) -> int:
    from emulation.journal import Journal
    from emulation.sandbox import Sandbox
    from testbed.plan.model import to_json

    descriptor = os.memfd_create("plan")
    os.write(descriptor, to_json(plan))
    os.lseek(descriptor, 0, os.SEEK_SET)
    journal = Journal()
    argv = [sys.executable, "-m", "emulation.shell", str(descriptor), *command]
    try:
        with Sandbox(argv, pass_fds=[descriptor]) as sandbox:
            journal.process(sandbox.process.pid)
            return _wait(sandbox)
    finally:
        os.close(descriptor)
        journal.close()


def _wait(sandbox: Sandbox) -> int:
    """Wait for the shell inside; Ctrl-C is for it, and the terminal sends it the signal as well."""
    while True:
        try:
            return sandbox.wait()
        except KeyboardInterrupt as error:
            if error.args == ("SIGTERM",):
                raise
