"""What stays behind after many starts and stops of emulated networks, some of them by SIGKILL.

Each network lives in a sandbox of its own, as a run's would. After each stop the machine's processes, interfaces and
queues are compared with those before; descriptors, network namespaces and kernel memory are compared at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

from analysis.benchmarks.harness import ROOT, Row

TOKEN = "TESTBED_ENDURANCE"  # an environment variable that marks the processes of one network
GONE_DEADLINE_S = 5.0
START_DEADLINE_S = 60.0


@dataclass(slots=True)
class EnduranceReport:
    """``leftovers`` names what stayed; it must be empty. Pairs are (before, after)."""

    starts: int = 0
    killed: int = 0
    leftovers: list[str] = field(default_factory=list)
    bring_up_s: list[float] = field(default_factory=list)
    gone_s: list[float] = field(default_factory=list)
    descriptors: tuple[int, int] = (0, 0)
    namespaces: tuple[int, int] = (0, 0)  # network namespaces of the whole machine, dead ones too
    kernel_mb: tuple[float, float] = (0.0, 0.0)


def endure(starts: int, kills: int, sites: int, workers: int, seed: int = 1) -> EnduranceReport:
    """Start and stop ``starts`` networks; ``kills`` of them, at random moments, by SIGKILL of their launcher."""
    random, report = Random(seed), EnduranceReport()
    doomed = set(random.sample(range(starts), kills))
    descriptors = psutil.Process().num_fds
    before = descriptors(), _namespaces(), _kernel_mb()
    for number in range(starts):
        interfaces, token = _interfaces(), f"{os.getpid()}-{number}"
        delay_s = random.uniform(0.0, 2.0) if number in doomed else None
        up_s = _bring_up(token, sites, workers, delay_s)
        if up_s is not None:
            report.bring_up_s.append(up_s)
        report.starts += 1
        report.killed += delay_s is not None
        report.gone_s.append(_wait_until_gone(token, report))
        changed = set(_interfaces().splitlines()) ^ set(interfaces.splitlines())
        if changed:
            report.leftovers.append(f"start {number}: {changed}")
    report.descriptors, report.namespaces, report.kernel_mb = zip(
        before, (descriptors(), _namespaces(), _kernel_mb()), strict=True
    )
    return report


def _bring_up(token: str, sites: int, workers: int, kill_after_s: float | None) -> float | None:
    """Bring a network up and down in a launcher process; return its bring-up time in s, ``None`` if it was killed."""
    command = ["bring_up", "--sites", str(sites), "--workers", str(workers), "--json"]
    launcher = subprocess.Popen(
        [sys.executable, "-m", "analysis.benchmarks", *command],
        cwd=ROOT, env={**os.environ, TOKEN: token}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with launcher:
        try:
            if kill_after_s is not None:
                time.sleep(kill_after_s)
                return None
            output, _ = launcher.communicate(timeout=START_DEADLINE_S)
            return float(json.loads(output)["bring_up_s"])
        finally:
            launcher.kill()


def _wait_until_gone(token: str, report: EnduranceReport) -> float:
    """Wait until no process of the network is left; seconds that it took."""
    begin_s = time.monotonic()
    while left := _processes(token):
        if time.monotonic() > begin_s + GONE_DEADLINE_S:
            report.leftovers.append(f"{token}: processes {left}")
            break
        time.sleep(0.005)
    return time.monotonic() - begin_s


def _processes(token: str) -> list[int]:
    running = psutil.process_iter(["environ"])
    return [process.pid for process in running if (process.info["environ"] or {}).get(TOKEN) == token]


def _interfaces() -> str:
    commands = (["ip", "-brief", "link"], ["tc", "qdisc"])
    return "".join(
        subprocess.run(argv, capture_output=True, text=True, check=True, timeout=10).stdout for argv in commands
    )


def _namespaces() -> int:
    """Network namespaces in the kernel's allocator; 0 where only root may look."""
    time.sleep(1.0)  # they are freed by a worker of the kernel
    try:
        lines = Path("/proc/slabinfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("net_namespace ")), 0)


def _kernel_mb() -> float:
    """Kernel memory of the whole machine that cannot be reclaimed."""
    values = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(float(values[name].split()[0]) for name in ("SUnreclaim", "KernelStack", "Percpu")) / 1024


def measure(options: argparse.Namespace) -> Iterator[Row]:
    report = endure(options.starts, options.kills, options.sites, options.workers)
    yield {
        "starts": report.starts, "killed": report.killed,
        "up_median_s": statistics.median(report.bring_up_s), "up_max_s": max(report.bring_up_s),
        "gone_max_s": max(report.gone_s), "descriptors": "{} -> {}".format(*report.descriptors),
        "namespaces": "{} -> {}".format(*report.namespaces),
        "kernel_mb": "{:.0f} -> {:.0f}".format(*report.kernel_mb),
        "ok": not report.leftovers, "leftovers": ", ".join(report.leftovers),
    }  # fmt: skip


ARGUMENTS = {
    "--starts": {"type": int, "default": 100},
    "--kills": {"type": int, "default": 10},
    "--sites": {"type": int, "default": 4},
    "--workers": {"type": int, "default": 3, "help": "hosts per site"},
}
