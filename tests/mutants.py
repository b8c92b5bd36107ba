"""Break ``testbed/policy``, ``codec`` and ``plan`` at places that a seed draws, and list what no test notices.

``python -m tests.mutants --sample 100 --seed 1`` runs mutmut (``pip install mutmut``), configured in pyproject.toml,
in a copy of this checkout. Each mutant meets the tests that run through it, in a process forked from one that has
imported everything.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("policy", "codec", "plan")
SURVIVED, NO_TESTS = 0, 33  # mutmut's exit codes; others are failures, errors and tests that were ended


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=100, help="how many mutants (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default 1)")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes at once (default 2)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        copy = Path(place) / "checkout"
        copy_to(copy)
        names = all_mutants(copy)
        drawn = random.Random(options.seed).sample(names, min(options.sample, len(names)))
        command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", str(options.jobs), *drawn]
        done = subprocess.run(command, cwd=copy, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            sys.exit(f"mutmut ended with exit status {done.returncode}")
        report(drawn, exit_codes(copy), len(names))


def copy_to(copy: Path) -> None:
    """Copy the files that git knows, as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0")[:-1]:
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)


def all_mutants(copy: Path) -> list[str]:
    """Return the names of all mutants of the rooms."""
    from mutmut.mutation.file_mutation import mutate_file_contents
    from mutmut.utils.format_utils import get_mutant_name

    names = []
    for path in sorted(path for room in ROOMS for path in (copy / "testbed" / room).rglob("*.py")):
        place = path.relative_to(copy)
        mutated = mutate_file_contents(str(place), path.read_text(encoding="utf-8"), None, None)
        names += [get_mutant_name(place, name) for name in mutated.mutant_names]
    return names


def exit_codes(copy: Path) -> dict[str, int | None]:
    """Return how the tests of each mutant ended; ``None`` if they were not run."""
    codes: dict[str, int | None] = {}
    for path in (copy / "mutants").rglob("*.meta"):
        codes |= json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
    return codes


def report(drawn: list[str], codes: dict[str, int | None], total: int) -> None:
    by_room: dict[str, Counter[str]] = {room: Counter() for room in ROOMS}
    unnoticed = []
    for name in sorted(drawn):
        code = codes.get(name)
        what = {None: "not run", SURVIVED: "unnoticed", NO_TESTS: "without a test"}.get(code, "noticed")
        by_room[name.split(".")[1]][what] += 1
        if what != "noticed":
            unnoticed.append(f"{what}: {name}")
    sys.stdout.write("\n".join(["", *unnoticed, ""]))
    for room, counts in by_room.items():
        sys.stdout.write(f"{room}: {counts['noticed']} of {counts.total()} noticed\n")
    noticed = sum(counts["noticed"] for counts in by_room.values())
    sys.stdout.write(f"{noticed} of {len(drawn)} mutants noticed, of {total}\n")


if __name__ == "__main__":
    main()
