"""Lists of what still breaks a rule, file by file: a count may fall, and never rises.

``python -m tests.architecture.ratchet`` counts again and lowers the lists (entries are never added or raised).
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PACKAGES = ("testbed", "emulation", "topologies", "analysis")
# The rules, by the name of their list; each is a module with ``violations()``.
RULES = {"technique_names": "tests.architecture.test_technique_names", "prose": "tests.architecture.test_prose"}
Violation = tuple[str, int, str]  # path, line, text


def product_files() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def allowed(name: str) -> Counter[str]:
    """Allowed violations by path: the list's lines are ``COUNT PATH``."""
    lines = (HERE / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return Counter({path: int(count) for count, path in (line.split(" ", 1) for line in lines)})


def above_allowed(name: str, violations: list[Violation]) -> list[str]:
    """All violations of the files that have more of them than their list allows."""
    counts, limits = Counter(path for path, _, _ in violations), allowed(name)
    return [f"{path}:{line}: {text}" for path, line, text in violations if counts[path] > limits[path]]


def lower(name: str, violations: list[Violation]) -> None:
    """Write the list again with each count lowered to what is left."""
    left = allowed(name) & Counter(path for path, _, _ in violations)
    (HERE / f"{name}.txt").write_text("".join(f"{left[path]} {path}\n" for path in sorted(left)), encoding="utf-8")
    sys.stdout.write(f"{name}: {left.total()} in {len(left)} files\n")


if __name__ == "__main__":
    for rule, module in RULES.items():
        lower(rule, importlib.import_module(module).violations())
