"""Break mechanisms one by one and report which of them no test notices: ``python -m tests.mutations``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies  # noqa: F401  (warm, so that the forked processes need not import it)
import pandas  # noqa: F401
import pyarrow.json  # noqa: F401
import sklearn.datasets  # noqa: F401

from tests.mutations.mutation import ROOT, Mutation, is_noticed
from tests.mutations.table import MUTATIONS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="those with this text in their name or place")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (default 2)")
    options = parser.parse_args()
    os.chdir(ROOT)
    chosen = {name: mutation for name, mutation in MUTATIONS.items() if options.only in f"{name} {mutation.place}"}
    with ThreadPoolExecutor(options.jobs) as pool:
        noticed = dict(zip(chosen, pool.map(_tell, chosen, chosen.values()), strict=True))
    unnoticed = [name for name, is_seen in noticed.items() if not is_seen]
    sys.stdout.write(f"{len(chosen) - len(unnoticed)} of {len(chosen)} noticed\n")
    sys.exit("\n".join(["unnoticed:", *unnoticed]) if unnoticed else 0)


def _tell(name: str, mutation: Mutation) -> bool:
    began_s = time.monotonic()
    try:
        noticed = is_noticed(mutation)
        outcome = "noticed" if noticed else "UNNOTICED"
    except RuntimeError as error:
        noticed, outcome = False, f"NOT RUN: {error}"
    sys.stdout.write(f"{outcome} in {time.monotonic() - began_s:.1f} s: {name} ({mutation.place})\n")
    sys.stdout.flush()
    return noticed


if __name__ == "__main__":
    main()
