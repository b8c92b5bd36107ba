"""No circles: modules of the product do not import each other in a ring, imports for type checking included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[2]
PACKAGES = ("testbed", "emulation", "topologies", "analysis")
KNOWN: set[frozenset[str]] = set()
"""Circles that are still to be taken apart; the list may only shrink."""


def modules(root: Path) -> dict[str, Path]:
    """Return every module of the packages below ``root`` by its dotted name."""
    found = {}
    for path in (path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Return what is below ``node`` without expressions, which are most of a tree and import nothing."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, field, ()):
            yield each
            yield from statements(each)


def imported(tree: ast.AST) -> set[str]:
    """Return every name that a module imports, anywhere in it, as ``package.module.name``."""
    found = set()
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def circles(root: Path) -> set[frozenset[str]]:
    """Return the strongly connected components of more than one module."""
    known, graph = modules(root), nx.DiGraph()
    for module, path in known.items():
        for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
            target = name if name in known else name.rpartition(".")[0]
            if target in known and target != module:
                graph.add_edge(module, target)
    return {frozenset(group) for group in nx.strongly_connected_components(graph) if len(group) > 1}


def test_there_is_no_circle_but_the_known_ones() -> None:
    found = circles(ROOT)
    assert [sorted(circle) for circle in found if not any(circle <= known for known in KNOWN)] == []
    assert [known for known in KNOWN if not any(circle <= known for circle in found)] == [], "take these from the list"


def test_imports_for_type_checking_and_inside_functions_count(tmp_path: Path) -> None:
    package = tmp_path / "testbed"
    package.mkdir()
    (package / "one.py").write_text("if TYPE_CHECKING:\n    from testbed.two import Thing\n", encoding="utf-8")
    (package / "two.py").write_text("def make():\n    import testbed.one\n", encoding="utf-8")
    (package / "three.py").write_text("from testbed import one, two\n", encoding="utf-8")
    assert circles(tmp_path) == {frozenset({"testbed.one", "testbed.two"})}
