"""A Ray cluster of real raylets on one machine: each in process, network and mount namespaces of its own.

    with raylets(workers=4) as cluster:
        cluster.driver([sys.executable, "-m", "testbed", "sweep", …, "--cluster", cluster.address])
        cluster.workers[1].kill()
        cluster.add()

A machine is a first process (``init``) and what it holds: its interface on a switch that all machines share, its
``/dev/shm`` and, on workers, its ``/tmp``, so that files get there only through Ray. Processes on it are killed with
its init. The kernel kills every init when the process that started it dies; interfaces and mounts have no names
outside the namespaces. Thus nothing is left, however the test ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PORT = 6379
START_LIMIT_S = 180.0
_OBJECT_STORE_BYTES = 200_000_000
_SWITCH = 240
# A short path, as names of sockets are limited; own to each machine, and there in sandboxes too: the code is below it.
_TEMPORARY = "/mnt/ray"
# Reaps what is left to it, and has the parent-death signal that unshare has set.
_INIT = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True: signal.pause()"
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "RAY_worker_niceness": "0",  # workers at Ray's raised niceness starve beside other tests
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "150",  # on a busy machine a raylet takes its time
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}


@cache
def missing() -> str:
    """Return why raylets cannot be started here; empty if they can."""
    if find_spec("ray") is None:
        return "needs Ray: pip install 'testbed[cluster]'"
    if os.geteuid() != 0:
        return "needs root, for machines in network namespaces"
    absent = [name for name in ("unshare", "nsenter", "setpriv", "ip") if shutil.which(name) is None]
    return f"needs {', '.join(absent)}" if absent else ""


needs_raylets = pytest.mark.skipif(bool(missing()), reason=missing() or "raylets can be started")


class Machine:
    """Namespaces with an address on the switch, and the processes in them."""

    def __init__(self, number: int, *, own_tmp: bool) -> None:
        self.number, self.address = number, f"10.77.0.{10 + number}"
        namespaces = ["--fork", "--pid", "--mount", "--net", "--uts", "--ipc", "--mount-proc", "--kill-child"]
        self._unshare = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, sys.executable, "-S", "-E", "-c", _INIT],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.init_pid = _only_child(self._unshare)
        mounts = ["/dev/shm", "/mnt", *(["/tmp"] if own_tmp else [])]
        setup = [f"mount -t tmpfs tmpfs {place}" for place in mounts]
        self.run(["sh", "-ec", "; ".join([*setup, f"hostname machine{number}", "ip link set lo up"])])

    def ip(self, *arguments: str) -> None:
        """Run ``ip`` in this machine's network namespace. Processes are numbered as outside."""
        command = ["nsenter", "--target", str(self.init_pid), "--net", "ip", *arguments]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs ``argv`` on this machine, from outside. It dies with the machine."""
        kinds = ["--mount", "--pid", "--net", "--uts", "--ipc"]
        return ["nsenter", "--target", str(self.init_pid), *kinds, f"--wd={ROOT}", "--", *argv]

    def popen(self, argv: Sequence[str], env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start a command on this machine. Further keywords go to ``subprocess.Popen``."""
        variables = {**os.environ, **_ENVIRONMENT, **(env or {})}
        return subprocess.Popen(self.command(argv), env=variables, text=True, **options)

    def run(self, argv: Sequence[str], limit_s: float = START_LIMIT_S, env: Mapping[str, str] | None = None) -> str:
        """Run a command on this machine; return what it writes. Raise ``AssertionError`` with it if it fails."""
        process = self.popen(argv, env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            raise AssertionError(f"{argv}: no end within {limit_s} s\n{output}") from None
        assert process.returncode == 0, f"{argv}: ended with {process.returncode}\n{output}"
        return output

    def processes(self) -> dict[int, str]:
        """Return the processes on this machine by their number outside, with their commands; without its init."""
        mine = Path(f"/proc/{self.init_pid}/ns/pid").readlink()
        found = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                pid = int(entry.name)
                if pid != self.init_pid and (entry / "ns/pid").readlink() == mine:
                    found[pid] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return {pid: command for pid, command in found.items() if command}

    def disk(self) -> set[str]:
        """Return the paths below ``/tmp`` of this machine."""
        top = Path(f"/proc/{self.init_pid}/root/tmp")
        return {str(path.relative_to(top)) for path in top.rglob("*")}

    def alive(self) -> bool:
        """Return whether the machine has not been killed."""
        return self._unshare.poll() is None

    def kill(self) -> None:
        """Kill every process of the machine and remove its interface, files and namespaces, as by a loss of power."""
        with suppress(ProcessLookupError):
            if self._unshare.poll() is None:
                os.kill(self.init_pid, signal.SIGKILL)
        self._unshare.wait()


@dataclass(slots=True)
class Raylets:
    """A running cluster. ``head`` has no cores, so tasks run on ``workers`` only; commands of a user run on it."""

    machines: list[Machine]
    head: Machine
    switch: Machine
    workers: list[Machine] = field(default_factory=list)

    @property
    def address(self) -> str:
        """The address to give to ``--cluster`` on any of the machines."""
        return f"{self.head.address}:{PORT}"

    def driver(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a command on the head, which shares ``/tmp`` with the test; keywords as of ``Machine.popen``."""
        return self.head.popen(argv, **options)

    def add(self, cores: int = 1, *, labels: str = "", env: Mapping[str, str] | None = None) -> Machine:
        """Start one more machine and its raylet; return when it has joined.

        labels  ``dc=tokyo,rack=2``; env  environment of its raylet and tasks
        """
        machine = _machine(self.machines, len(self.workers) + 1)
        self.workers.append(machine)
        self.plug(machine)
        options = ["--address", self.address, "--num-cpus", str(cores), "--num-gpus", "0"]
        _start_ray(machine, [*options, *(["--labels", labels] if labels else [])], env)
        return machine

    def plug(self, machine: Machine) -> None:
        """Connect a machine to the switch by an interface ``eth0``."""
        port = f"port{machine.number}"
        pair = ["type", "veth", "peer", "name", "eth0", "netns", str(machine.init_pid)]
        self.switch.ip("link", "add", port, "master", "br0", "up", *pair)
        machine.ip("addr", "add", f"{machine.address}/24", "dev", "eth0")
        machine.ip("link", "set", "eth0", "up")


@contextmanager
def raylets(workers: int, cores: int = 1, *, labels: Sequence[str] = ()) -> Iterator[Raylets]:
    """Start a head and ``workers`` raylets, one after the other; kill them and all on their machines at the end.

    labels  those of each worker, e.g. ``["dc=tokyo", "dc=paris"]``
    """
    machines: list[Machine] = []
    try:
        switch = _machine(machines, _SWITCH)
        switch.ip("link", "add", "br0", "up", "type", "bridge")
        cluster = Raylets(machines, _machine(machines, 0, own_tmp=False), switch)
        cluster.plug(cluster.head)
        options = ["--head", "--port", str(PORT), "--num-cpus", "0", "--num-gpus", "0", "--include-dashboard=false"]
        _start_ray(cluster.head, [*options, "--temp-dir", _TEMPORARY])
        for number in range(workers):
            cluster.add(cores, labels=labels[number] if labels else "")
        yield cluster
    finally:
        for machine in reversed(machines):
            machine.kill()
        _wait_until_gone(machine.init_pid for machine in machines)


def _machine(machines: list[Machine], number: int, *, own_tmp: bool = True) -> Machine:
    machine = Machine(number, own_tmp=own_tmp)
    machines.append(machine)
    return machine


def _start_ray(machine: Machine, options: Sequence[str], env: Mapping[str, str] | None = None) -> None:
    ray = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start"]
    store = ["--object-store-memory", str(_OBJECT_STORE_BYTES), "--disable-usage-stats"]
    machine.run([*ray, "--node-ip-address", machine.address, *store, *options], env=env)


def _only_child(process: subprocess.Popen[bytes]) -> int:
    deadline_s = time.monotonic() + START_LIMIT_S
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while time.monotonic() < deadline_s:
        with suppress(OSError):
            for pid in children.read_text().split():
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"signal.pause" in command and b"unshare" not in command:
                    return int(pid)
        assert process.poll() is None, f"unshare ended with {process.returncode}"
        time.sleep(0.01)
    raise AssertionError("unshare has started no process")


def _wait_until_gone(pids: Any) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    for pid in pids:
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < deadline_s, f"process {pid} is left"
            time.sleep(0.01)
