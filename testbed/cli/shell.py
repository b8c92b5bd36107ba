"""Bring a scenario's network up and work in it: inspect, measure, change links, run any program in any node.

`testbed shell SCENARIO` reads commands (try 'help'); `testbed shell SCENARIO --in NODE -- COMMAND…` runs one program
in a node, behind the scenario's links, and ends with its exit status. Nothing is trained.

Links and processor are watched meanwhile, and the last line says whether the network kept to the scenario. With
`--record` the shell leaves a run directory, as a run does: what every link carried over time, its measured rates and
delays, the fidelity report. Without it, no files are left. SIGTERM or the end of the terminal ends the shell and all
programs in it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.cli.interrupts import Interrupts, take_interrupts
from testbed.cli.options import add_scenario, read_scenario
from testbed.environment import own_interpreter
from testbed.errors import ScenarioError

if TYPE_CHECKING:
    from emulation.sandbox import Sandbox
    from testbed.plan.model import Plan
    from testbed.scenario import Scenario

HELP = "bring a network up and run programs in it"
_POLL_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument(
        "--in",
        dest="node",
        metavar="NODE",
        help="run one command in this node; write '-- COMMAND' at the end of the line",
    )
    parser.add_argument(
        "--record",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="DIR",
        help="write a run directory; default: a new one below runs/",
    )


def execute(arguments: argparse.Namespace) -> int:
    with take_interrupts() as interrupts:
        return _execute(arguments, interrupts)


def _execute(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    from emulation.probe import probe
    from testbed.plan.build import build_plan
    from testbed.scenario.load import moved

    if arguments.json:
        raise ScenarioError("--json: has no effect on a shell; with --record its results are in result.json")
    if arguments.on not in (None, "emulate"):
        raise ScenarioError(f"--on {arguments.on}: a shell works in an emulated network only")
    if (arguments.node is None) != (not arguments.command):
        raise ScenarioError(
            "--in: write --in NODE -- COMMAND, with the command after two dashes at the end of the line"
        )
    scenario = moved(read_scenario(arguments), "emulate")
    plan = build_plan(scenario)
    names = [node.name for node in plan.nodes]
    if arguments.node is not None and arguments.node not in names:
        raise ScenarioError(f"--in: no node '{arguments.node}'; nodes: {', '.join(names)}")
    for warning in plan.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    probe().require_emulation()
    command = [arguments.node, *arguments.command] if arguments.command else []
    if arguments.record is None:
        return _watched(plan, command, interrupts)
    by_hand = _by_hand(plan, arguments.command)
    return _recorded(scenario, by_hand, arguments.record, command, interrupts)


def _watched(plan: Plan, command: list[str], interrupts: Interrupts) -> int:
    """Run the shell, then print the fidelity of the network."""
    from testbed.plan.model import to_json
    from testbed.results import fidelity, tables

    with tempfile.TemporaryDirectory(prefix="testbed-shell-") as events:
        code = _run(plan, events, command, interrupts)
        frames = {name: table.to_pandas() for name, table in tables.build(Path(events)).items()}
    if len(frames["links"]):  # otherwise the shell ended before the network was up, and has said why
        report = fidelity.assess(frames, json.loads(to_json(plan)), {})
        print("\n  ".join([f"fidelity: {report['status']}", *report["reasons"]]), file=sys.stderr)
    return code


def _by_hand(plan: Plan, command: list[str]) -> Plan:
    """Return the Plan of a run in which the user starts programs by hand."""
    from testbed.settings.job import Program

    program = Program(
        command=tuple(command) or ("shell",),
        first=(),
        ends="all",
        listens=0,
        workers=(1,) * len(plan.nodes),
        env={},
        cwd=str(Path.cwd()),
        timeout_s=0.0,
    )
    return replace(plan, program=program)


def _recorded(scenario: Scenario, plan: Plan, out: Path, command: list[str], interrupts: Interrupts) -> int:
    from emulation.sandbox import require_seen
    from testbed import launch
    from testbed.execution.record import final_status
    from testbed.execution.session import INTERRUPTED, SessionResult
    from testbed.results.rundir import AlreadyDone

    begin_s = time.monotonic()
    require_seen([out])
    try:
        run = launch.prepare(scenario, plan, out=out if out != Path() else None)
    except AlreadyDone as done:
        raise ScenarioError(f"--record {done}: holds a finished run; give another directory") from done
    with final_status(run):
        code = _run(plan, str(run.events.resolve()), command, interrupts)
        told = f"{' '.join(command)} ended with exit status" if command else "a command of the shell failed:"
        outcome = SessionResult("failed" if code else "done", f"{told} {code}" if code else "", code)
        if interrupts.terminated:
            outcome = INTERRUPTED
        launch.finish(run, plan, outcome, **launch.since(begin_s))
    print(f"run directory: {run.path}", file=sys.stderr)
    return code


def _run(plan: Plan, events: str, command: list[str], interrupts: Interrupts) -> int:
    from emulation.sandbox import Sandbox
    from testbed.plan.model import to_json

    interrupts.deferred = True  # closing a terminal may send several signals, which must not disturb the clean-up
    descriptor = os.memfd_create("plan")
    os.write(descriptor, to_json(plan))
    os.lseek(descriptor, 0, os.SEEK_SET)
    argv = [*own_interpreter(), "-m", "emulation.shell", str(descriptor), events, *command]
    try:
        with Sandbox(argv, pass_fds=[descriptor]) as sandbox:
            return _wait(sandbox, interrupts)
    finally:
        os.close(descriptor)


def _wait(sandbox: Sandbox, interrupts: Interrupts) -> int:
    """Wait for the shell in the sandbox, or for a signal that ends it. The shell gets Ctrl-C as well and handles it."""
    code = None
    while code is None and not interrupts.terminated:
        with suppress(subprocess.TimeoutExpired):
            code = sandbox.wait(_POLL_S)
    return 143 if code is None or interrupts.terminated else code
