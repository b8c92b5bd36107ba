"""Rules of the source that neither ruff, mypy nor import-linter checks (these three are steps of ``.ci/run``)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.sources import ROOT, product_files


def test_every_module_says_what_it_is_for() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in product_files()}
    assert [name for name, text in texts.items() if text.strip() and not text.startswith('"""')] == []


FORBIDDEN_WORDS = {"killall", "pkill"}
WORDS = ("shell", "system", "mn -c", *FORBIDDEN_WORDS)  # a file without any of them breaks no rule


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
        for path in product_files()
        if any(word in (text := path.read_text(encoding="utf-8")) for word in WORDS)
        for line, what in forbidden_in(ast.parse(text))
    ]
    assert not found, "\n".join(found)


def test_that_rule_sees_what_it_forbids() -> None:
    bad = 'subprocess.run("x", shell=True)\nos.system("x")\nrun(["pkill", "-9"])\nrun("mn -c")\n"""pkill in prose"""'
    assert sorted(line for line, _ in forbidden_in(ast.parse(bad))) == [1, 2, 3, 4]
