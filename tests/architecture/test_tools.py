"""The project's own rules, held by its tools: style, types, layers, sizes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
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


FORBIDDEN_WORDS = {"killall", "pkill"}


def forbidden_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Shells, and commands that end processes by name, wherever they are code and not prose."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if any(keyword.arg == "shell" for keyword in node.keywords) or ast.unparse(node.func) == "os.system":
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            words = node.value.split()
            if FORBIDDEN_WORDS & set(words) or node.value.startswith("mn -c"):
                yield node.lineno, node.value


def test_commands_are_never_given_to_a_shell() -> None:
    """Names come from users: argument lists only, and nothing is ended by name."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in sources()
        for line, what in forbidden_in(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "\n".join(found)


def test_that_rule_sees_what_it_forbids() -> None:
    bad = 'subprocess.run("x", shell=True)\nos.system("x")\nrun(["pkill", "-9"])\nrun("mn -c")\n"""pkill in prose"""'
    assert sorted(line for line, _ in forbidden_in(ast.parse(bad))) == [1, 2, 3, 4]
