"""Starts and stops of emulated networks, some of them killed: does anything stay? ``python -m emulation.endurance``.

Each network lives in a sandbox of its own, as a run's would. After each stop the machine's processes, network
namespaces, interfaces and queues are compared with those before; memory and descriptors are compared at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from emulation.sandbox import Sandbox

ROOT = Path(__file__).resolve().parent.parent
TOKEN = "TESTBED_ENDURANCE"
GONE_DEADLINE_S = 5.0
START_DEADLINE_S = 60.0


@dataclass(slots=True)
class EnduranceReport:
    """``leftovers`` names what stayed; it must be empty."""

    starts: int = 0
    killed: int = 0
    leftovers: list[str] = field(default_factory=list)
    bring_up_s: list[float] = field(default_factory=list)
    gone_s: list[float] = field(default_factory=list)
    descriptors: tuple[int, int] = (0, 0)
    namespaces: tuple[int, int] = (0, 0)  # network namespaces that the whole machine's kernel holds, dead ones too
    kernel_mb: tuple[float, float] = (0.0, 0.0)

    def __str__(self) -> str:
        up, gone = sorted(self.bring_up_s), sorted(self.gone_s)
        return (
            f"{self.starts} starts, {self.killed} killed; up in {statistics.median(up):.2f} s (median), {up[-1]:.2f} s"
            f" (most); gone after {gone[-1] * 1e3:.0f} ms at most; descriptors {self.descriptors[0]} ->"
            f" {self.descriptors[1]}; namespaces {self.namespaces[0]} ->"
            f" {self.namespaces[1]}; kernel memory {self.kernel_mb[0]:.0f} -> {self.kernel_mb[1]:.0f} MB;"
            f" left over: {', '.join(self.leftovers) or 'nothing'}"
        )


def endure(starts: int, kills: int, sites: int, workers: int, seed: int = 1) -> EnduranceReport:
    """Start and stop ``starts`` networks; ``kills`` of them, at random moments, by SIGKILL of their launcher."""
    random, report = Random(seed), EnduranceReport()
    doomed = set(random.sample(range(starts), kills))
    report.descriptors = (_descriptors(), 0)
    report.namespaces = (_namespaces(), 0)
    report.kernel_mb = (_kernel_mb(), 0.0)
    for number in range(starts):
        before = _interfaces()
        token = f"{os.getpid()}-{number}"
        delay_s = random.uniform(0.0, 2.0) if number in doomed else None
        up_s = _one(token, sites, workers, delay_s)
        if up_s is not None:
            report.bring_up_s.append(up_s)
        report.starts += 1
        report.killed += delay_s is not None
        report.gone_s.append(_let_go(token, report))
        after = _interfaces()
        if after != before:
            report.leftovers.append(f"start {number}: {set(after.splitlines()) ^ set(before.splitlines())}")
    report.descriptors = (report.descriptors[0], _descriptors())
    report.namespaces = (report.namespaces[0], _namespaces())
    report.kernel_mb = (report.kernel_mb[0], _kernel_mb())
    return report


def _one(token: str, sites: int, workers: int, kill_after_s: float | None) -> float | None:
    """One network up and down, in a launcher process of its own; its bring-up time, None if it was killed."""
    argv = [sys.executable, "-m", "emulation.endurance", "--launch", f"{sites},{workers}"]
    launcher = subprocess.Popen(
        argv, cwd=ROOT, env={**os.environ, TOKEN: token}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            return None
        output, _ = launcher.communicate("", timeout=START_DEADLINE_S)
        return float(output)
    finally:
        launcher.kill()
        launcher.wait()
        for pipe in (launcher.stdin, launcher.stdout):
            if pipe is not None:
                pipe.close()


def _let_go(token: str, report: EnduranceReport) -> float:
    """Wait until no process of the network is left; seconds that it took."""
    begin = time.monotonic()
    while left := _processes(token):
        if time.monotonic() > begin + GONE_DEADLINE_S:
            report.leftovers.append(f"{token}: processes {sorted(left)}")
            break
        time.sleep(0.005)
    return time.monotonic() - begin


def _processes(token: str) -> set[int]:
    found, wanted = set(), f"{TOKEN}={token}".encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def _interfaces() -> str:
    commands = (["ip", "-brief", "link"], ["tc", "qdisc"])
    return "".join(
        subprocess.run(argv, capture_output=True, text=True, check=True, timeout=10).stdout for argv in commands
    )


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _namespaces() -> int:
    """Network namespaces in the kernel's allocator; 0 where only root may look."""
    time.sleep(1.0)  # they are freed by a worker of the kernel
    try:
        lines = Path("/proc/slabinfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("net_namespace ")), 0)


def _kernel_mb() -> float:
    """What the kernel keeps for itself and cannot give back, of the whole machine."""
    values = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(float(values[name].split()[0]) for name in ("SUnreclaim", "KernelStack", "Percpu")) / 1024


def _launch(sites: int, workers: int) -> None:
    argv = [sys.executable, "-m", "emulation.endurance", "--inside", f"{sites},{workers}"]
    with Sandbox(argv, cwd=ROOT) as sandbox:
        sandbox.wait(START_DEADLINE_S)


def _inside(sites: int, workers: int) -> None:
    from emulation.network import Emulation
    from emulation.probe import probe
    from emulation.sample_plans import ring

    with Emulation(ring(sites, workers), probe(), lambda kind, **fields: None) as network:
        network.start(time.monotonic())
        print(network.bring_up_s, flush=True)  # noqa: T201 - the launcher's launcher reads it


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if anything is left over."""
    parser = argparse.ArgumentParser(
        prog="python -m emulation.endurance", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--workers", type=int, default=3, help="hosts of each site")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--launch", help=argparse.SUPPRESS)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for size, work in ((options.launch, _launch), (options.inside, _inside)):
        if size:
            work(*(int(number) for number in size.split(",")))
            return 0
    report = endure(options.starts, options.kills, options.sites, options.workers)
    print(json.dumps(asdict(report)) if options.json else report)  # noqa: T201 - a command
    return 1 if report.leftovers else 0


if __name__ == "__main__":
    sys.exit(main())
