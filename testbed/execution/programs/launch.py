"""The processes of a program's run: the command of each node with its placeholders filled in, and its environment.

The environment has torchrun's variables, so that a script finds its process group, in addition to the environment of
the command ``testbed``.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.environment import program_environment
from testbed.errors import CapabilityError
from testbed.placeholders import fill
from testbed.plan.model import NodePlan, Plan
from testbed.processes.child import Child
from testbed.settings.job import Program

LOGS = "logs"
HOSTFILE = "hosts"
_STDOUT = "stdout"
Counters = tuple[int, int]
Traffic = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Hosts:
    """The nodes as hosts, on which processes run. ``names`` and ``addresses`` are in the order of ranks.

    environment  variables that processes need in addition to ours
    start        starts a process, given a node's name, the command, and keywords of Popen
    as_node      returns the words to put before the command of a node
    traffic      returns the bytes over the WAN, ``up`` and ``down``, by data centre
    counters     returns the bytes that a node's interface has sent and received
    """

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    interface: str
    master_port: int
    environment: Mapping[str, str]
    start: Callable[..., Child]
    as_node: Callable[[str], list[str]] = lambda node: []
    traffic: Callable[[], Traffic] = dict
    counters: Callable[[str], Counters | None] = lambda node: None


@dataclass(frozen=True, slots=True)
class ProgramProcess:
    """One process to be started.

    reports_on_stdout, metrics_file  where the process reports metrics, if it does
    ends_run                         whether the run waits for the end of this process before it stops the others
    """

    node: NodePlan
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    reports_on_stdout: bool
    metrics_file: Path | None
    ends_run: bool


def processes_of(plan: Plan, hosts: Hosts, directory: Path) -> list[ProgramProcess]:
    """Return the processes of a run by rank; write its host file. Raise ``CapabilityError`` if a program is missing.

    directory  the run directory
    """
    program = plan.program
    assert program is not None
    directory = directory.resolve()
    (directory / LOGS).mkdir(exist_ok=True)
    lines = [name for name, count in zip(hosts.names, program.workers, strict=True) for _ in range(count)]
    (directory / LOGS / HOSTFILE).write_text("\n".join(lines) + "\n")
    found = []
    for node in plan.nodes:
        command = program.first if node.rank == 0 and program.first else program.command
        if command:
            found.append(_process(program, node, command, hosts, directory))
    for process in found:
        _require(process.argv[0], process.environment)
    return found


def _process(
    program: Program, node: NodePlan, command: tuple[str, ...], hosts: Hosts, directory: Path
) -> ProgramProcess:
    values = _values(program, node, hosts, directory)
    metrics = fill(program.metrics, values)
    environment = {
        **_with_own_programs({**program_environment(), **hosts.environment}),
        **_variables(values),
        **{name: fill(text, values) for name, text in program.env.items()},
    }
    return ProgramProcess(
        node=node,
        argv=tuple(fill(argument, values) for argument in command),
        environment=environment,
        log=directory / LOGS / f"{node.name.replace('/', '.')}.log",
        reports_on_stdout=metrics == _STDOUT,
        metrics_file=Path(program.cwd, metrics) if metrics not in ("", _STDOUT) else None,
        ends_run=_ends_run(program, node),
    )


def _ends_run(program: Program, node: NodePlan) -> bool:
    """Return whether the run waits for the end of this node's process."""
    if program.ends == "all":
        return True
    is_first = node.rank == 0
    return is_first if program.ends == "first" else not is_first


def _values(program: Program, node: NodePlan, hosts: Hosts, directory: Path) -> dict[str, str]:
    values: dict[str, object] = {
        "rank": node.rank,
        "world_size": len(hosts.names),
        "local_rank": 0,
        "local_world_size": 1,
        "workers": program.workers[node.rank],
        "node": node.name,
        "data_center": node.data_center,
        "host": hosts.names[node.rank],
        "address": hosts.addresses[node.rank],
        "hosts": ",".join(hosts.names),
        "addresses": ",".join(hosts.addresses),
        "hostfile": directory / LOGS / HOSTFILE,
        "interface": hosts.interface,
        "master_addr": hosts.addresses[0],
        "master_port": hosts.master_port,
        "run_dir": directory,
    }
    return {name: str(value) for name, value in values.items()}


def _variables(values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that torchrun sets, the one that MPICH's mpirun reads, and others with prefix TESTBED_."""
    of_torchrun = ("rank", "world_size", "local_rank", "local_world_size", "master_addr", "master_port")
    own = ("node", "data_center", "host", "address", "hosts", "addresses", "hostfile", "interface", "run_dir")
    return {
        **{name.upper(): values[name] for name in of_torchrun},
        "GROUP_RANK": values["rank"],
        "GROUP_WORLD_SIZE": values["world_size"],
        "NODE_RANK": values["rank"],
        "HYDRA_HOST_FILE": values["hostfile"],
        **{f"TESTBED_{name.upper()}": values[name] for name in own},
    }


def _with_own_programs(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the directory of this Python first on the path."""
    path = os.pathsep.join((str(Path(sys.executable).parent), environment.get("PATH", os.defpath)))
    return {**environment, "PATH": path, "PYTHONUNBUFFERED": "1"}


def require_programs(program: Program) -> None:
    """Raise ``CapabilityError`` if a command of the program is not installed on this machine."""
    environment = _with_own_programs({**os.environ, **program.env})
    for command in filter(None, (program.command, program.first)):
        _require(command[0], environment)


def _require(name: str, environment: Mapping[str, str]) -> None:
    if os.sep not in name and "{" not in name and shutil.which(name, path=environment["PATH"]) is None:
        raise CapabilityError(f"workload: there is no program '{name}' on the path; install it, or write its path")
