"""Ways of writing a schedule of faults otherwise that mean the same: nothing of the run may differ.

``python -m tests.faults.algebra --schedules 500`` simulates schedules both ways, and prints each that ends otherwise.
"""

from __future__ import annotations

import argparse
import math
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.runs import Ended, run_plan
from tests.faults.schedules import Case, case

MEMORY = Path("/dev/shm")  # files there cost no disk
_LASTING = re.compile(r"at: (\d+) ms, for: (\d+) ms")
# the network is 2 to 20 Mbit/s with 5 to 15 ms, without losses
_WEAK = (
    "kind: rate, link: '*', at: {at} ms, for: {length} ms, rate: 10 Gbit/s",
    "kind: delay, link: '*', at: {at} ms, for: {length} ms, delay: 1 us",
)


def in_two(faults: tuple[str, ...], chance: Random) -> tuple[str, ...]:
    """One of them ends somewhere in its midst, and begins again at that instant, or before and so overlaps."""
    found = [text for text in faults if _LASTING.search(text) and not _draws(text)]
    if not found:
        return faults
    whole = chance.choice(found)
    begin_ms, length_ms = map(int, _LASTING.search(whole).groups())  # type: ignore[union-attr]
    cut_ms = chance.randint(1, length_ms - 1)
    again_ms = chance.randint(1, cut_ms) if chance.random() < 0.5 and "slow" not in whole else cut_ms
    parts = (
        _LASTING.sub(f"at: {begin_ms} ms, for: {cut_ms} ms", whole),
        _LASTING.sub(f"at: {begin_ms + again_ms} ms, for: {length_ms - again_ms} ms", whole),
    )
    return (*(parts[0] if text == whole else text for text in faults), parts[1])  # the seed draws by position


def reordered(faults: tuple[str, ...], chance: Random) -> tuple[str, ...]:
    """Another order. The seed draws by position: those that draw stay where they are."""
    free = [number for number, text in enumerate(faults) if not _draws(text)]
    texts = list(faults)
    for number, other in zip(free, chance.sample(free, len(free)), strict=True):
        texts[number] = faults[other]
    return tuple(texts)


def with_more(faults: tuple[str, ...], chance: Random) -> tuple[str, ...]:
    """With one of no effect, and one that is there already."""
    at, length = chance.randint(0, 1000), chance.randint(1, 800)
    twice = [text for text in faults if not _draws(text) and "slow" not in text]
    return (*faults, chance.choice(_WEAK).format(at=at, length=length), *twice[:1])


REWRITES: dict[str, Callable[[tuple[str, ...], Random], tuple[str, ...]]] = {
    "in two": in_two,
    "reordered": reordered,
    "with more": with_more,
}


def _draws(text: str) -> bool:
    return "pick" in text or "sometime" in text


def essence(ended: Ended) -> dict[str, Any]:
    """What a run amounts to: bits, every round with its times, and how it ended."""
    kinds = ("round", "update", "final", "epoch", "restart", "evaluation")
    events = [{name: value for name, value in event.items() if name != "message"} for event in ended.events(*kinds)]
    return {"events": events, "hashes": ended.hashes(), "error": ended.error and str(ended.error)}


def simulated(tried: Case) -> dict[str, Any]:
    directory = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
    try:
        return essence(run_plan(tried.plan, directory, listens=False))
    finally:
        shutil.rmtree(directory)


def differing(seed: int) -> list[str]:
    """How the schedule of that seed has to be written to end otherwise; empty if it never does."""
    tried, chance = case(seed), Random(f"rewritten/{seed}")
    before, found = simulated(tried), []
    for name, rewrite in REWRITES.items():
        texts = rewrite(tried.faults, chance)
        after = simulated(tried.but(*texts))
        if after != before:
            found.append(f"{name}: {_difference(before, after)}\n  " + "\n  ".join((*tried.overrides, "->", *texts)))
    return found


def _difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    if before["error"] != after["error"]:
        return f"{before['error']} | {after['error']}"
    pairs = zip(before["events"], after["events"], strict=False)
    return next((f"{one} | {other}" for one, other in pairs if one != other), "hashes, or the number of events")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no more of them after this time")
    given = parser.parse_args()
    count, done, began_s = 0, 0, time.monotonic()
    while done < given.schedules and time.monotonic() - began_s < given.seconds:
        for text in differing(given.seed + done):
            count += 1
            sys.stdout.write(f"seed {given.seed + done}: {text}\n")
        done += 1
    sys.stdout.write(f"rewrote {done} schedules in {len(REWRITES)} ways: {count} ended otherwise\n")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
