"""Compare the first rounds of all shipped scenarios, simulated, with their golden values, or write these anew.

``python -m tests.golden [NAME ...]`` compares all scenarios, or some; ``--write`` writes their values. Each scenario
runs in a process of its own, forked from one that has imported everything and computes by the routines of ``kernels``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Any

from tests.golden import values
from tests.golden.kernels import libraries, missing_instructions, restart_with_variables

INCOMPARABLE = 3  # exit code
FAILED = "failed"  # so begins the status of a run that has not ended well


def main() -> int:
    """Return 1 if a value differs, ``INCOMPARABLE`` where the libraries or the processor are others."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a scenario, such as sync/hfa; by default all")
    parser.add_argument("--write", action="store_true", help="write the values that are found")
    parser.add_argument("--jobs", type=int, default=2, help="how many scenarios at once (default 2)")
    options = parser.parse_args()
    if missing := missing_instructions():
        print(f"golden values are computed with AVX2, and this processor has no {missing}")  # noqa: T201
        return INCOMPARABLE
    restart_with_variables("tests.golden")
    if not options.write and libraries() != values.libraries():
        print(f"golden values are of {values.libraries()}; here are {libraries()}")  # noqa: T201
        return INCOMPARABLE

    from tests.golden.first_rounds import cases
    from tests.golden.processes import measure_all

    if unknown := [name for name in options.names if name not in cases()]:
        parser.error(f"no scenario has the name {', '.join(unknown)}")
    names = options.names or list(cases())
    measured = measure_all(names, options.jobs)
    if options.write:
        write(dict(measured), list(cases()))
        return 0
    return compare(names, measured, is_whole=not options.names)


def write(measured: dict[str, dict[str, Any]], names: list[str]) -> None:
    """Write these values, and keep those of the other ``names``. End this process if a run has failed."""
    for name, found in measured.items():
        if found.get("status", "").startswith(FAILED):
            sys.exit(f"nothing was written, because of {name}: {found['status']}")
    golden = {**(values.read() if values.FILE.exists() else {}), **measured}
    values.write({name: golden[name] for name in names if name in golden}, libraries())


def compare(names: list[str], measured: Iterable[tuple[str, dict[str, Any]]], is_whole: bool) -> int:
    """Print every difference; return 1 if there is one."""
    golden, wrong = values.read(), 0
    for name, found in measured:
        differences = values.differences(golden.get(name), found)
        wrong += bool(differences)
        for difference in differences:
            print(f"{name}: {difference}", flush=True)  # noqa: T201
    if is_whole:
        for name in golden.keys() - set(names):
            wrong += 1
            print(f"{name}: has golden values, and is no scenario any more")  # noqa: T201
    print(f"{wrong} of {len(names)} scenarios differ from their golden values")  # noqa: T201
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
