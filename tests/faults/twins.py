"""The same schedule of faults simulated and emulated: the same end, the same bits, and rounds that take as long.

``python -m tests.faults.twins --schedules 10`` draws schedules of faults that overlap, runs each on both back ends and
prints how they differ. With ``--against exact`` the second one is a kernel in virtual time, on which the machine's load
has no effect. With ``--against simulate --moved-ms 50`` it is the simulator again, with faults that begin 50 ms later:
how much of a difference is due to when in a round they begin. Times are those from the last round before the first
fault to the first one that ends after the last.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from testbed.errors import TestbedError
from tests.end_to_end.runs import run_scenario
from tests.faults.runs import faults

JOB = (
    "training.rounds=24",
    "training.evaluate_every=24",
    "topology.links[1].rate_trace=null",
    "training.target_accuracy=null",
)
PAIRS = ("virginia<>frankfurt", "virginia<>tokyo", "frankfurt>virginia", "virginia>tokyo")
VALUES = {"down": "", "rate": ", rate: 4 Mbit/s", "delay": ", delay: 200 ms"}
FIRST_MS, LAST_MS = 2000, 4000
TOLERANCE = 0.15


@dataclass(frozen=True)
class End:
    """``error``: class of what ended it; ``rounds``: when the first worker had finished each, in s of training."""

    error: str
    hashes: frozenset[str]
    rounds: tuple[float, ...]


def schedule(seed: int, moved_ms: int = 0) -> tuple[str, ...]:
    """The faults of that seed: two of one pair of data centres that overlap, and for half of them one of a worker.

    All of them ``moved_ms`` later.
    """
    chance = Random(f"twins/{seed}")
    link = chance.choice(PAIRS)
    begin_ms, length_ms = chance.randint(FIRST_MS, LAST_MS) + moved_ms, chance.randint(600, 3000)
    inside_ms = begin_ms + chance.randint(0, length_ms - 1)
    texts = [
        f"kind: {kind}, link: {link}, at: {at_ms} ms, for: {for_ms} ms{VALUES[kind]}"
        for kind, at_ms, for_ms in (
            ("down", begin_ms, length_ms),
            (chance.choice(tuple(VALUES)), inside_ms, chance.randint(300, 2000)),
        )
    ]
    kind = chance.choice(("", "", "pause", "slow"))
    if kind:
        factor = ", factor: 4" if kind == "slow" else ""
        texts.append(f"kind: {kind}, node: tokyo/worker0, at: {begin_ms} ms, for: 1 s{factor}")
    return tuple(texts)


def ended(directory: Path, back_end: str, texts: tuple[str, ...]) -> End:
    """How a run ended on that back end."""
    try:
        run = run_scenario(directory, back_end, *JOB, faults(*texts))
    except TestbedError as error:
        return End(type(error).__name__, frozenset(), ())
    train_s = min(event["t"] for event in run.of_kind("train"))
    rounds = [event["t"] - train_s for event in run.of_kind("round") if event["node"] == "virginia/worker0"]
    digests = (event.get("parameters_sha256") for event in run.of_kind("final"))
    return End("", frozenset(digest for digest in digests if digest), tuple(sorted(rounds)))


def across_s(end: End, texts: tuple[str, ...]) -> float:
    """Return how long the rounds took that the faults fall into."""
    first_s = FIRST_MS / 1e3
    last_s = max((int(text.split("at: ")[1].split()[0]) + _length_ms(text)) / 1e3 for text in texts)
    before_s = max((at_s for at_s in end.rounds if at_s < first_s), default=0.0)
    return next((at_s for at_s in end.rounds if at_s > last_s), end.rounds[-1]) - before_s


def _length_ms(text: str) -> int:
    amount, unit = text.split("for: ")[1].replace(",", "").split()[:2]
    return int(amount) * (1000 if unit == "s" else 1)


def twin(seed: int, against: str, moved_ms: int) -> tuple[str, float]:
    """What differs that must not (empty: nothing), and by which share the simulated time differs."""
    texts, moved, directory = schedule(seed), schedule(seed, moved_ms), Path(tempfile.mkdtemp(prefix="twin"))
    try:
        simulated, other = ended(directory / "first", "simulate", texts), ended(directory / "second", against, moved)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if simulated.error != other.error:
        return f"simulated {simulated.error or 'well'}, {against} {other.error or 'well'}", math.nan
    if simulated.hashes != other.hashes:
        return "other bits", math.nan
    if simulated.error:
        return "", math.nan
    return "", across_s(simulated, texts) / across_s(other, moved) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--against", choices=("emulate", "exact", "simulate"), default="emulate")
    parser.add_argument("--moved-ms", type=int, default=0, help="how much later the second run's faults begin")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no more of them after this time")
    given = parser.parse_args()
    began_s, done, errors = time.monotonic(), 0, []
    different = 0
    for seed in range(given.seed, given.seed + given.schedules):
        if time.monotonic() - began_s > given.seconds:
            break
        what, error = twin(seed, given.against, given.moved_ms)
        done, different = done + 1, different + bool(what)
        errors += [] if math.isnan(error) else [error]
        sys.stdout.write(f"{seed}: {what or f'{error:+.1%}'}\n  " + "\n  ".join(schedule(seed)) + "\n")
        sys.stdout.flush()
    near = sum(abs(error) <= TOLERANCE for error in errors)
    median = statistics.median(map(abs, errors)) if errors else math.nan
    sys.stdout.write(
        f"{done} twins: {different} ended otherwise; of {len(errors)} times, {near} within {TOLERANCE:.0%}, "
        f"median error {median:.1%}\n"
    )
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
