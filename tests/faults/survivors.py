"""Workers without servers are killed at random instants, in virtual time: what must hold, holds after each.

``python -m tests.faults.survivors --schedules 100`` kills any worker at that many instants for all-reduce and for
gossip, and prints every schedule that breaks something with the command that repeats it: ``--only SEED``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from testbed.errors import RunFailed
from tests.faults.runs import CONTINUE, Ended, faults, run

ROUNDS, LAST_MS = 8, 1200  # a calm run takes about 1.2 s of virtual time
WORKERS = ("hub/worker0", "east/worker0", "east/worker1", "west/worker0")
SMALL = (f"training.rounds={ROUNDS}", "training.batch=8", "simulation.events=brief", "training.evaluate_every=2")
SUMS = ("ring", "tree", "blueconnect", "torus2d", "butterfly", "double_binary_tree", "flat_topk")
MIXES = ("dpsgd", "sgp", "adpsgd")
GRAPHS = ("ring", "exponential", "complete", "network")
CODECS = ("none", "none", "fp16", "{kind: bisparse, ratio: 0.1}")


@dataclass(frozen=True)
class Schedule:
    """Who is killed when, and with which technique; ``overrides`` as a scenario would say it."""

    seed: int
    technique: tuple[str, ...]
    kills: tuple[str, ...]

    @property
    def overrides(self) -> tuple[str, ...]:
        return (*SMALL, *self.technique, CONTINUE, faults(*self.kills))


def schedule(paradigm: str, seed: int) -> Schedule:
    """The schedule of that seed: one to three kills, most of workers that start again."""
    chance = Random(f"{paradigm}/{seed}")
    technique = _all_reduce(chance) if paradigm == "allreduce" else _gossip(chance)
    technique += (f"checkpoint.every={chance.choice((0, 0, 2))}",)
    kills = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        back = f", for: {chance.randint(20, 600)} ms" if chance.random() < 0.6 else ""
        kills.append(f"kind: kill, node: {chance.choice(WORKERS)}, at: {chance.randint(0, LAST_MS)} ms{back}")
    return Schedule(seed, technique, tuple(kills))


def _all_reduce(chance: Random) -> tuple[str, ...]:
    algorithm, bucket = chance.choice(SUMS), chance.choice(("1 KiB", "25 MB"))
    overlap = ", overlap: buckets" if chance.random() < 0.5 else ""
    codec = "none" if algorithm == "flat_topk" else chance.choice(CODECS)
    steps = "sync={kind: diloco, h: 2}" if not overlap and chance.random() < 0.3 else "sync=fsa"
    return f"paradigm={{kind: allreduce, algorithm: {algorithm}, bucket: {bucket}{overlap}}}", f"codec={codec}", steps


def _gossip(chance: Random) -> tuple[str, ...]:
    algorithm = chance.choice(MIXES)
    codec = chance.choice(("none", "fp16")) if algorithm != "adpsgd" else "none"
    return f"paradigm={{kind: gossip, algorithm: {algorithm}, graph: {chance.choice(GRAPHS)}}}", f"codec={codec}"


def broken(one: Schedule) -> str:
    """What does not hold after it; empty if all does."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            return judged(run(Path(directory), *one.overrides, listens=False))
        except Exception as error:
            return f"raised {type(error).__name__}: {error}"


def judged(ended: Ended) -> str:
    """Return what is wrong, or nothing: training reaches its last round, and all survivors hold the same bits."""
    if ended.error is not None:
        all_lost = isinstance(ended.error, RunFailed) and "no other training worker is left" in str(ended.error)
        return "" if all_lost else f"{type(ended.error).__name__}: {ended.error}"
    gone: dict[str, bool] = {}
    for event in ended.events("epoch"):
        gone |= dict.fromkeys(event["targets"].split(", "), not event["begins"])
    held = {
        event["parameters_sha256"]
        for event in ended.events("final")
        if event["node"] in WORKERS and not gone.get(event["node"])
    }
    if len(held) != 1:
        return f"survivors hold {len(held)} different values"
    for worker in WORKERS:
        rounds = ended.rounds(worker)
        if worker not in gone and rounds != list(range(len(rounds))):
            return f"{worker} has done the rounds {rounds}"
        if worker not in gone and len(rounds) < ROUNDS and "adpsgd" not in str(ended.plan.technique.paradigm):
            return f"{worker} has stopped after round {rounds[-1]}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.schedules) if given.only is None else range(given.only, given.only + 1)
    for paradigm in ("allreduce", "gossip"):
        began_s, count = time.monotonic(), 0
        for one in (schedule(paradigm, seed) for seed in seeds):
            if why := broken(one):
                count += 1
                texts = "\n  ".join((*one.technique, *one.kills))
                sys.stdout.write(
                    f"{paradigm}: {why}\n  {texts}\n  python -m tests.faults.survivors --only {one.seed}\n"
                )
                sys.stdout.flush()
        took_s = time.monotonic() - began_s
        sys.stdout.write(f"{paradigm}: {len(seeds)} schedules in {took_s:.0f} s: {count} broke something\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
