"""Random schedules of faults in virtual time, against every technique and policy: what must hold, holds after each.

``python -m tests.faults.search --schedules 2000 --seed 1`` prints every schedule that breaks an invariant, made as
short as it can be, as the command that repeats it: ``--only SEED``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from random import Random

from testbed.errors import RunFailed
from tests.faults.runs import Ended, faults, run

AT_WORKER = "optimizer={kind: adam, learning_rate: 0.01, at: worker}"
SYNCHRONOUS: dict[str, tuple[str, ...]] = {
    "fsa": (),
    "ps": ("paradigm=ps",),
    "hfa": ("sync={kind: hfa, k1: 2, k2: 3}", AT_WORKER),
    "diloco": ("sync={kind: diloco, h: 2}", AT_WORKER),
    "bisparse": ("codec={tier1: none, tier2: {kind: bisparse, ratio: 0.1}}",),
    "fp16": ("codec=fp16",),
    "p3": ("order={kind: p3, slice: 2 KiB, overlap: none}",),
}
OTHERS: dict[str, tuple[str, ...]] = {
    "mixedsync": ("sync=mixedsync",),
    "tap": ("sync=tap",),
    "ssp": ("paradigm=ps", "sync={kind: ssp, staleness: 2}"),
}
TECHNIQUES = SYNCHRONOUS | OTHERS
EXPENDABLE = ("hub/worker0", "east/worker0", "east/worker1", "west/worker0", "east", "west")
ANYBODY = (*EXPENDABLE, "hub/global0", "hub/scheduler")
LINKS = ("hub<>east", "hub>west", "west>hub")


class Schedule:
    """What ``seed`` makes: a technique, a policy, and some faults."""

    def __init__(self, seed: int) -> None:
        chance = Random(f"schedule/{seed}")
        self.name = chance.choice(sorted(TECHNIQUES))
        self.policy = chance.choice(("restart", "continue"))
        self.faults = [self._fault(chance) for _ in range(chance.randint(1, 4))]

    def _fault(self, chance: Random) -> str:
        at = f"at: {chance.randint(0, 1500)} ms"
        kind = chance.choice(("kill", "kill", "kill", "pause", "down", "rate", "slow"))
        for_ = f"for: {chance.randint(50, 800)} ms"
        if kind in ("down", "rate"):
            rate = ", rate: 200 kbit/s" if kind == "rate" else ""
            return f"kind: {kind}, link: {chance.choice(LINKS)}, {at}, {for_}{rate}"
        whom = chance.choice(ANYBODY if self.policy == "restart" else EXPENDABLE)
        target = f"node: {whom}" if "/" in whom else f"data_center: {whom}"
        if kind == "slow":
            return f"kind: slow, node: '*/worker*', pick: 2, {at}, {for_}, factor: 5"
        ends = f", {for_}" if kind == "pause" or chance.random() < 0.6 else ""
        return f"kind: {kind}, {target}, {at}{ends}"

    def overrides(self, texts: list[str]) -> tuple[str, ...]:
        recovery = f"recovery={{on_failure: {self.policy}, delay: 100 ms, max_restarts: 9}}"
        return (*TECHNIQUES[self.name], recovery, faults(*texts))


def broken(schedule: Schedule, texts: list[str], calm: dict[str, set[str]]) -> str:
    """Which invariant the schedule breaks, with these of its faults; empty if none."""
    directory = Path(tempfile.mkdtemp())
    try:
        if schedule.name not in calm:
            calm[schedule.name] = run(directory / "calm", *TECHNIQUES[schedule.name]).hashes()
        return _judged(schedule, run(directory / "hit", *schedule.overrides(texts)), calm[schedule.name])
    finally:
        shutil.rmtree(directory)


def _judged(schedule: Schedule, ended: Ended, calm: set[str]) -> str:
    if ended.error is not None:
        nobody_left = isinstance(ended.error, RunFailed) and "no worker is left" in str(ended.error)
        return "" if nobody_left and schedule.policy == "continue" else f"{type(ended.error).__name__}: {ended.error}"
    if schedule.policy == "restart" and schedule.name in SYNCHRONOUS and ended.hashes() != calm:
        return "other bits than without faults"
    if schedule.name in SYNCHRONOUS and len(calm) == 1 and len(ended.hashes()) != 1:
        return "survivors hold different values"
    return _versions(ended) or _rounds(schedule, ended)


def _versions(ended: Ended) -> str:
    """They go back at restarts only."""
    restarts = [event["t"] for event in ended.events("restart")]
    last: dict[tuple[int, int], int] = {}
    for update in ended.events("update"):
        where = (update["key"], sum(t <= update["t"] for t in restarts))
        if update["version"] != last.get(where, update["version"] - 1) + 1:
            return f"version {update['version']} of key {update['key']} after {last[where]}"
        last[where] = update["version"]
    return ""


def _rounds(schedule: Schedule, ended: Ended) -> str:
    """Who was never hit has done every round."""
    gone = {name for event in ended.events("epoch") for name in event["targets"].split(", ")}
    for node in ended.plan.with_role("worker"):
        if node.name not in gone and sorted(set(ended.rounds(node.name))) != list(range(13)):
            return f"{node.name} has left out rounds"
    return ""


def shrunk(schedule: Schedule, calm: dict[str, set[str]]) -> list[str]:
    """The faults without those that are not needed to break it."""
    texts = list(schedule.faults)
    for text in list(texts):
        fewer = [each for each in texts if each is not text]
        if fewer and broken(schedule, fewer, calm):
            texts = fewer
    return texts


def search(seeds: range, calm: dict[str, set[str]]) -> list[str]:
    """A line for every schedule that breaks something."""
    found = []
    for seed in seeds:
        schedule = Schedule(seed)
        why = broken(schedule, schedule.faults, calm)
        if why:
            texts = "; ".join(shrunk(schedule, calm))
            found.append(
                f"{schedule.name}, {schedule.policy}: {why}\n  {texts}\n  python -m tests.faults.search --only {seed}"
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.schedules)
    calm: dict[str, set[str]] = {}
    for seed in seeds if given.only is None else range(given.only, given.only + 1):
        for line in search(range(seed, seed + 1), calm):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    sys.stdout.write(f"searched {len(seeds) if given.only is None else 1} schedules\n")


if __name__ == "__main__":
    main()
