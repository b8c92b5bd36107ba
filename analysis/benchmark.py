"""How long loading takes: ``python -m analysis.benchmark RUN`` makes 1 000 runs of 1 000 rounds and reads them.

The tables are those of a run of two workers with one key, made once and linked 1 000 times under names of their own:
every run is opened, its result verified, and its rounds, transfers and accuracy are put into frames.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from analysis.load import frame, load
from testbed.results.events import EventLog
from testbed.results.tables import build
from testbed.results.tables import write as write_tables

_TRANSFER = {"source": "b/server0", "message": "value", "key": 0, "payload_bytes": 4000, "header_bytes": 90,
             "tier": "wan"}  # fmt: skip
NAMES = ("rounds", "transfers", "accuracy")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("sample", type=Path, help="a finished run directory, for its Plan and result")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = make(Path(folder), arguments.sample, arguments.runs, arguments.rounds)
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        runs = load(paths)
        frames = {name: frame(runs, name) for name in NAMES}
        took_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
    rows = {name: len(content) for name, content in frames.items()}
    told = f"{took_s:.2f} s ({cpu_s:.2f} s of processor), rows: {rows}"
    sys.stdout.write(f"{arguments.runs} runs of {arguments.rounds} rounds: {told}\n")
    return 0


def make(folder: Path, sample: Path, runs: int, rounds: int) -> list[Path]:
    """Run directories that share their files by hard links."""
    first = folder / "run-0000"
    first.mkdir()
    for name in ("plan.json", "manifest.json", "status.json", "result.json", "fidelity.json"):
        (first / name).write_bytes((sample / name).read_bytes())
    _events(first / "events", rounds)
    write_tables(first / "tables", build(first / "events"))
    return [first, *(_copy(first, folder / f"run-{number:04d}") for number in range(1, runs))]


def _events(events: Path, rounds: int) -> None:
    random = np.random.default_rng(1)
    for node in ("a/worker0", "b/worker0"):
        log = EventLog(events, node)
        log.write("train", 1.0, rounds=rounds, workers=2)
        for number, length in enumerate(random.uniform(0.1, 0.2, rounds)):
            t = 1.0 + number * 0.2
            log.write("round", t + length, t0=t, round=number, loss=float(length), samples=32)
            log.write("transfer", t + length, t0=t, round=number, **_TRANSFER, target=node)
            if number % 10 == 0:
                log.write("evaluate", t + length, round=number, accuracy=float(length), loss=0.1, snapshot_t=t)
        log.close()


def _copy(source: Path, target: Path) -> Path:
    (target / "tables").mkdir(parents=True)
    for path in source.rglob("*"):
        if path.is_file() and path.parent.name != "events":
            os.link(path, target / path.relative_to(source))
    return target


if __name__ == "__main__":
    sys.exit(main())
