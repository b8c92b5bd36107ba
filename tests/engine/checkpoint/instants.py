"""Runs in virtual time, killed at random instants and resumed: bits and times are those of a run that was not killed.

``python -m tests.engine.checkpoint.instants --instants 1000`` draws techniques from a covering array (any two axes
meet in every way) and from those of one axis; half of the runs have faults of links that overlap. ``--members``: it
takes the schedules of ``tests.faults.search`` whose runs go on without lost nodes. Each run that goes on otherwise is
printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

from testbed.errors import ScenarioError
from testbed.scenario.matrix import Combination
from tests.engine.checkpoint.killed import resumed_at, run_until, story
from tests.engine.checkpoint.test_every_technique import TECHNIQUES, plan_of, texts_of
from tests.faults.runs import faults
from tests.faults.schedules import Case, case
from tests.scenario.covering import covering

INSTANTS = 5  # of each run
PROMISED = ("no other training worker is left", "times in a row")  # how runs may end that have lost too much
LINKS = ("hub<>east", "hub>west", "west>hub")
KINDS = ("down", "rate: 200 kbit/s", "loss: 5 %", "delay: 90 ms", "share: 5 %")


@cache
def _rows() -> list[Combination]:
    return covering(1)


def drawn(seed: int) -> tuple[str, ...]:
    """What a scenario says: the technique of that seed, and perhaps faults."""
    chance = Random(f"instants/{seed}")
    texts = texts_of(chance.choice(_rows())) if chance.random() < 0.5 else TECHNIQUES[chance.choice(sorted(TECHNIQUES))]
    return (*texts, faults(*_overlapping(chance))) if chance.random() < 0.5 else tuple(texts)


def _overlapping(chance: Random) -> list[str]:
    link, begin_ms = chance.choice(LINKS), chance.randint(0, 600)
    texts = []
    for _ in range(chance.randint(2, 3)):
        kind, colon, value = chance.choice(KINDS).partition(": ")
        name = "corrupt" if kind == "share" else kind
        at_ms = begin_ms + chance.randint(0, 200)
        more = f", {kind}: {value}" if colon else ""
        texts.append(f"kind: {name}, link: {link}, at: {at_ms} ms, for: {chance.randint(200, 900)} ms{more}")
    return texts


def members_case(seed: int) -> Case | None:
    """The schedule of that seed, with checkpoints, if its run goes on without lost nodes."""
    found = case(seed)
    found = replace(found, every=found.every or 1 + seed % 3)
    return found if found.policy == "continue" else None


def differing(seed: int, directory: Path, members: bool) -> tuple[int, list[str]]:
    """How many instants were tried, and what was other than in the run that was not killed."""
    try:
        found_case = members_case(seed) if members else None
        if members and found_case is None:
            return 0, []
        plan = found_case.plan if found_case else plan_of(*drawn(seed))
    except ScenarioError:
        return 0, []  # the combination does not go with the job's own values
    chance, found = Random(f"killed/{seed}"), []
    try:
        whole = run_until(plan, directory / "whole")
    except AssertionError as error:
        if members and any(promised in str(error) for promised in PROMISED):
            return 0, []
        raise
    begin_s = next((event["t"] for event in whole if event["kind"] == "checkpoint"), None)
    if begin_s is None:
        return 0, []
    for number in range(INSTANTS):
        killed, at_s = directory / f"killed{number}", chance.uniform(begin_s, whole[-1]["t"])
        run_until(plan, killed, at_s)
        since_s = resumed_at(killed, plan)
        before, after = story(whole, since_s), story(run_until(plan, killed), since_s)
        if before != after or not before:
            pairs = zip(before, after, strict=False)
            first = next((f"{one} | {other}" for one, other in pairs if one != other), "their number")
            found.append(f"killed at {at_s:.6f}, resumed from {since_s:.6f}: {first}")
    return INSTANTS, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instants", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--members", action="store_true", help="runs that go on without lost nodes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no more of them after this time")
    given = parser.parse_args()
    began_s, done, different, seed = time.monotonic(), 0, 0, given.seed
    while done < given.instants and time.monotonic() - began_s < given.seconds:
        with tempfile.TemporaryDirectory() as directory:
            try:
                count, found = differing(seed, Path(directory), given.members)
            except Exception as error:
                count, found = INSTANTS, [f"raised {type(error).__name__}: {error}"]
        for text in found:
            again = f"python -m tests.engine.checkpoint.instants --instants 1 --seed {seed}"
            again += " --members" if given.members else ""
            said = members_case(seed) if given.members else None
            texts = said.overrides if said else drawn(seed)
            sys.stdout.write(f"{text}\n  " + "\n  ".join(texts) + f"\n  {again}\n")
        done, different, seed = done + count, different + len(found), seed + 1
    sys.stdout.write(f"{done} instants of seeds {given.seed} to {seed - 1}: {different} went on otherwise\n")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
