"""The project's own rules, held by its tools: style, types, layers, sizes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PACKAGES = ("testbed", "emulation", "topologies", "analysis")
MAX_LINES = 400


def check(*command: str) -> None:
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("arguments", [("check",), ("format", "--check")])
def test_ruff(arguments: tuple[str, ...]) -> None:
    check(str(BIN / "ruff"), *arguments, *PACKAGES, "tests")


def test_mypy() -> None:
    check(str(BIN / "mypy"))


def test_imports_run_downwards() -> None:
    check(str(BIN / "lint-imports"))


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_rooms_are_small_and_say_what_they_are_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES, f"{path.name} has more than {MAX_LINES} lines"
    assert not text.strip() or text.startswith('"""'), f"{path.name} begins without a docstring"


def test_commands_are_never_given_to_a_shell() -> None:
    """Names come from users: argument lists only, and nothing is ended by name."""
    forbidden = re.compile(r"shell=True|os\.system\(|\bkillall\b|\bpkill\b|\bmn -c\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if forbidden.search(line) and not line.lstrip().startswith("#") and '"""' not in line
    ]
    assert not found, "\n".join(found)
