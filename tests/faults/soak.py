"""Long runs in which somebody is killed every few seconds: they get on, and nothing grows.

``python -m tests.faults.soak --minutes 10 --on-failure continue`` (or ``restart``) trains on loopback; every five
seconds a node that the seed draws is killed. It prints the least number of updates between two kills, how memory and
open files of the processes that were there all the time grew, and fails when any of it is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil

from testbed.errors import Interrupted
from tests.faults.runs import Ended, faults, plan_of, run_plan

EVERY_S, BACK_AFTER_S = 5.0, 1.5
SETTLED_S = 30.0  # before this, caches fill
WHOM = {"continue": "'*st/*'", "restart": "'*'"}  # east and west; anybody
MB_PER_MIN = 1.0
LATE_S = 0.5  # the parent wakes ten times a second
STEP_S = 1.0  # between two looks; a longer time is one in which the machine, or somebody, had stopped all of us
PATIENCE = "30 min"  # so that such a stop ends nothing: who hangs is found by what did not happen between two kills


@dataclass(frozen=True)
class Sample:
    """What a process held ``t`` seconds after the watching began.

    held_bytes  its memory without pages of files: those of libraries come one by one, as code is first needed
    """

    t: float
    held_bytes: int
    descriptors: int


Samples = dict[int, list[Sample]]  # by process


def overrides(policy: str, seconds: float) -> tuple[str, ...]:
    """A job that is ended from outside, with its kills."""
    kills = int(seconds / EVERY_S) + 2
    restarts = f", delay: 200 ms, max_restarts: {10 * kills}" if policy == "restart" else ""
    recovery = f"recovery={{on_failure: {policy}{restarts}}}"
    kill = (
        f"kind: kill, node: {WHOM[policy]}, pick: 1, at: 5 s, for: {BACK_AFTER_S} s, every: {EVERY_S} s, times: {kills}"
    )
    return (
        "device.variation=0 %",
        "device.step_time=50 ms",
        "training.rounds=1000000",
        "training.evaluate_every=100",
        f"timeouts={{dead_after: {PATIENCE}, tcp_user_timeout: {PATIENCE}, step_deadline: {PATIENCE}, "
        f"rendezvous: {PATIENCE}, run_deadline: 24 h}}",
        f"checkpoint.every={20 if policy == 'restart' else 0}",
        recovery,
        faults(kill),
    )


def held_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def watch(parent: int, seconds: float, report: Path) -> None:
    """Look at all processes every second, then end the run. Time in which all stood still does not count."""
    t, seen_s, samples = 0.0, time.monotonic(), Samples()
    while t < seconds:
        for process in [psutil.Process(parent), *psutil.Process(parent).children()]:
            try:
                seen = Sample(t, held_bytes(process.pid), process.num_fds())
            except (psutil.Error, OSError):  # it has ended
                continue
            if process.pid != os.getpid():
                samples.setdefault(process.pid, []).append(seen)
        time.sleep(STEP_S)
        t += min(2 * STEP_S, time.monotonic() - seen_s)
        seen_s = time.monotonic()
    report.write_text(
        json.dumps({pid: [[s.t, s.held_bytes, s.descriptors] for s in own] for pid, own in samples.items()})
    )
    os.kill(parent, signal.SIGINT)


def soaked(directory: Path, policy: str, seconds: float) -> tuple[Ended, Samples]:
    """The run, which the watcher has interrupted, and what the watcher saw."""
    report = directory / "report.json"
    watcher = multiprocessing.get_context("fork").Process(target=watch, args=(os.getpid(), seconds, report))
    plan = plan_of(*overrides(policy, seconds), on="local")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored
    watcher.start()
    try:
        ended = run_plan(plan, directory / "run", listens=False)
    except KeyboardInterrupt:  # while a new attempt waits for its time; to the host process it is the same
        ended = Ended(plan, directory / "run", Interrupted("between two attempts"), [])
    finally:
        watcher.kill()
        watcher.join()
        signal.signal(signal.SIGINT, before)
    assert isinstance(ended.error, Interrupted), f"it should have been interrupted, and was ended by {ended.error!r}"
    return ended, {int(pid): [Sample(*one) for one in own] for pid, own in json.loads(report.read_text()).items()}


def lasting(samples: Samples, seconds: float) -> dict[int, list[Sample]]:
    """Of the processes that were there all the time, what was seen when they had settled."""
    there = {pid: own for pid, own in samples.items() if own[0].t < SETTLED_S / 2 and own[-1].t > seconds - 3}
    return {pid: [one for one in own if one.t > SETTLED_S] for pid, own in there.items()}


def slope_mb_per_min(samples: Sequence[Sample]) -> float:
    """Of the memory, by least squares."""
    times = np.array([one.t for one in samples])
    sizes = np.array([one.held_bytes for one in samples], dtype=float)
    return float(np.polyfit(times, sizes, 1)[0]) * 60 / 1e6


def grown_descriptors(samples: Sequence[Sample]) -> int:
    """How many more were open in the last fifth than in the first one, in the median.

    While a lost node is away there are fewer, and how many fewer is a matter of the moment at which one looks.
    """
    fifth = max(1, len(samples) // 5)
    first, last = (
        statistics.median_low(one.descriptors for one in part) for part in (samples[:fifth], samples[-fifth:])
    )
    return last - first


def progress(ended: Ended) -> list[int]:
    """How often the first key was updated between a kill and the next, unless all stood still: then kills are late."""
    kills = [event for event in ended.events("fault") if event["fault"] == "kill" and event["begins"]]
    updates = [event["t"] for event in ended.events("update") if event["key"] == 0]
    return [
        sum(before["t"] < t <= kill["t"] for t in updates)
        for before, kill in pairwise(kills)
        if max(before["late_s"], kill["late_s"]) < LATE_S
    ]


def judged(ended: Ended, samples: Mapping[int, Sequence[Sample]]) -> tuple[str, bool]:
    """What to say, and whether all is as it should be."""
    between = progress(ended)
    slopes, more = (
        [slope_mb_per_min(own) for own in samples.values()],
        [grown_descriptors(own) for own in samples.values()],
    )
    text = (
        f"{len(between) + 1} kills, at least {min(between, default=0)} updates between two of them; "
        f"{len(slopes)} processes lasted: memory {max(slopes):+.2f} MB/min at most, "
        f"{max(more):+d} open files at most"
    )
    return text, min(between, default=0) > 0 and max(slopes) < MB_PER_MIN and max(more) <= 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--on-failure", choices=sorted(WHOM), default="continue")
    given = parser.parse_args()
    seconds = 60 * given.minutes
    with tempfile.TemporaryDirectory() as name:
        ended, samples = soaked(Path(name), given.on_failure, seconds)
        text, good = judged(ended, lasting(samples, seconds))
    sys.stdout.write(f"{given.minutes:g} minutes, {given.on_failure}: {text}\n")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
