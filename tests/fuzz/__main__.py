"""``python -m tests.fuzz 100000``: feed the product's parsers spoilt input, and print what came of it, by kind."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

from tests.fuzz.kinds import KINDS, make, portions, trials
from tests.fuzz.trial import DEFECTS, Trial, signature

SHOWN = 3  # examples of one defect


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("inputs", type=int, nargs="?", default=1000, help="of all kinds together")
    parser.add_argument("--kind", choices=sorted(KINDS), action="append", help="only these")
    parser.add_argument("--seed", type=int, default=0, help="the first seed of each kind")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", metavar="KIND/SEED", help="one input, with its whole text")
    given = parser.parse_args()
    if given.only:
        kind, _, seed = given.only.partition("/")
        for trial in trials(kind, range(int(seed), int(seed) + 1)):
            sys.stdout.write(f"{trial.outcome} in {trial.seconds:.3f} s\n{trial.text}\n")
        return 0
    begin_s = time.monotonic()
    found = list(make(portions(given.inputs, given.kind or sorted(KINDS), given.seed), given.jobs))
    _print_defects(found)
    _print_table(found)
    sys.stdout.write(f"{len(found)} inputs in {time.monotonic() - begin_s:.0f} s\n")
    return int(any(trial.outcome in DEFECTS for trial in found))


def _print_defects(found: list[Trial]) -> None:
    by_signature: dict[str, list[Trial]] = {}
    for trial in found:
        if trial.outcome in DEFECTS:
            by_signature.setdefault(signature(trial), []).append(trial)
    for name, same in sorted(by_signature.items(), key=lambda entry: -len(entry[1])):
        sys.stdout.write(f"--- {len(same)} x {name}\n")
        for trial in same[:SHOWN]:
            sys.stdout.write(f"python -m tests.fuzz --only {trial.kind}/{trial.seed}\n{trial.text[-1200:]}\n")


def _print_table(found: list[Trial]) -> None:
    columns = ("accepted", "refused", *DEFECTS)
    sys.stdout.write(
        f"{'kind':12}{'inputs':>8}" + "".join(f"{name:>10}" for name in columns) + "  slowest s  peak MB\n"
    )
    for kind in dict.fromkeys(trial.kind for trial in found):
        own = [trial for trial in found if trial.kind == kind]
        counts = Counter(trial.outcome for trial in own)
        numbers = "".join(f"{counts[name]:>10}" for name in columns)
        slowest_s, peak_mb = max(trial.seconds for trial in own), max(trial.peak_bytes for trial in own) / 1e6
        sys.stdout.write(f"{kind:12}{len(own):>8}{numbers}{slowest_s:>11.2f}{peak_mb:>9.0f}\n")


if __name__ == "__main__":
    sys.exit(main())
