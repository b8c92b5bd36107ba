"""What tests of emulation on several machines do inside the sandbox. Every case returns plain data."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from testbed.errors import TestbedError
from testbed.execution import emulate_machines
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario.load import load
from tests.cluster.emulating import EmulatingAgents, machines
from tests.end_to_end.runs import QUICKSTART


def plan_of(*overrides: str, scenario: Path = QUICKSTART) -> Plan:
    """Return a scenario, by default the quickstart, emulated on several machines."""
    return build_plan(load(scenario, [*overrides, "cluster.emulate=true"]), "emulate")


def ran(
    directory: str, overrides: list[str], count: int = 2, mtu_bytes: int = 9000, limit: str = "", kill: str = "",
    scenario: str = str(QUICKSTART),
) -> dict[str, Any]:  # fmt: skip
    """Run a scenario on machines; return its progress, how it ended, and which devices are left of it.

    limit  of the first machine's interface, for ``tc qdisc``; kill: at which stage its agent is killed
    """
    told: list[dict[str, Any]] = []
    error = ""
    with machines(count, mtu_bytes) as found:
        if limit:
            subprocess.run(["tc", "-n", "machine0", "qdisc", "add", "dev", "eth0", "root", *limit.split()], check=True)
        starter = EmulatingAgents(found)

        def report(line: dict[str, Any]) -> None:
            told.append(line)
            if kill in (line["kind"], line.get("name")):
                with suppress(psutil.NoSuchProcess):  # it has been killed already
                    for agent in psutil.Process(starter.started[0].pid).children():
                        agent.kill()

        try:
            emulate_machines.run(plan_of(*overrides, scenario=Path(scenario)), Path(directory), report, starter)
        except TestbedError as caught:
            error = f"{type(caught).__name__}: {caught}"
        machines_ = [f"machine{number}" for number in range(count)]
        end_s = time.monotonic() + 5  # the kernel removes namespaces, with what is in them, after their last process
        while any(map(left_on, machines_)) and time.monotonic() < end_s:
            time.sleep(0.05)
        left = [left for machine in machines_ for left in left_on(machine)]
    return {"told": told, "error": error, "left": left}


def left_on(machine: str) -> list[str]:
    """Return the interfaces of a machine that are not its own, and the UDP sockets of tunnels."""
    links = json.loads(subprocess.check_output(["ip", "-n", machine, "-json", "link"]))
    ports = subprocess.check_output(["ip", "netns", "exec", machine, "ss", "-Hlun"], text=True)
    return [*(name for link in links if (name := link["ifname"]) not in ("lo", "eth0")), *ports.splitlines()]
