"""The kinds of input, and many of them: in how many processes, with which seeds."""

from __future__ import annotations

import faulthandler
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random

from tests.fuzz import jobs, networks, scenarios, stored, wire
from tests.fuzz.trial import Input, Trial, judge

# and the share of each in all inputs; those of ``resumed`` are simulations, half a second each
KINDS: dict[str, tuple[Callable[[Random, Path], Input], float]] = {
    "text": (scenarios.spoilt_text, 20),
    "structure": (scenarios.structured, 30),
    "trace": (networks.trace, 15),
    "graph": (networks.graph, 10),
    "table": (networks.table, 7),
    "job": (jobs.job, 7),
    "checkpoint": (stored.checkpoint, 7),
    "directory": (stored.directory, 5),
    "resumed": (stored.resumed, 0.5),
    "frame": (wire.frame, 4),
    "hello": (wire.hello, 1.5),
}
_STORED = ("checkpoint", "directory", "resumed")
_PORTION = 50
_STUCK_S = 60.0  # of one input, for which ``trial.LIMIT_S`` has no effect: outside Python


def trials(kind: str, seeds: Iterable[int]) -> Iterator[Trial]:
    """Make and judge the inputs of these seeds."""
    maker, _ = KINDS[kind]
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=shared if shared.is_dir() else None))
    try:
        for seed in seeds:
            faulthandler.dump_traceback_later(_STUCK_S, exit=True)
            yield judge(kind, seed, maker(Random(f"{kind}/{seed}"), folder))
            faulthandler.cancel_dump_traceback_later()
            stored.clear(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def portions(inputs: int, kinds: list[str], first_seed: int) -> list[tuple[str, range]]:
    """Return kinds and seeds for so many inputs, by the kinds' shares."""
    whole = sum(KINDS[kind][1] for kind in kinds)
    found = []
    for kind in kinds:
        seeds = range(first_seed, first_seed + max(1, round(inputs * KINDS[kind][1] / whole)))
        found += [(kind, seeds[at : at + _PORTION]) for at in range(0, len(seeds), _PORTION)]
    return found


def make(jobs: list[tuple[str, range]], processes: int) -> Iterator[Trial]:
    """Yield the trials of all portions, from forked processes."""
    if any(kind in _STORED for kind, _ in jobs):
        stored.stored_run()
    try:
        with ProcessPoolExecutor(processes, get_context("fork")) as pool:
            for found in pool.map(_portion, jobs):
                yield from found
    finally:
        stored.forget()


def _portion(job: tuple[str, range]) -> list[Trial]:
    return list(trials(*job))
