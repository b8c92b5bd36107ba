"""One name, one class; and of SimPy, only what it publishes."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import simpy

from tests.architecture.ratchet import ROOT, product_files

# Found twice when this test was written. Names may leave this set, none may enter it.
STILL_TWICE = {"Cable"}
OPEN_TO_ALL = {"Options"}  # each inside the technique that they configure
CLASS = re.compile(r"^ *class (\w+)\b[^`\n]*:", re.MULTILINE)  # to parse all modules takes two seconds


def classes(path: Path) -> Iterator[str]:
    for name in CLASS.findall(path.read_text(encoding="utf-8")):
        if name not in OPEN_TO_ALL:
            yield name


def test_no_class_name_stands_twice() -> None:
    places = defaultdict(list)
    for path in product_files():
        for name in classes(path):
            places[name].append(path.relative_to(ROOT).as_posix())
    twice = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if name not in STILL_TWICE} == {}


def test_options_are_inside_their_owner() -> None:
    outside = re.compile(rf"^class ({'|'.join(OPEN_TO_ALL)})\b", re.MULTILINE)
    assert [path for path in product_files() if outside.search(path.read_text(encoding="utf-8"))] == []


@cache
def private_by_class() -> dict[str, set[str]]:
    """Attributes with a leading underscore that each class of SimPy reads or writes of itself."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(Path(simpy.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name] |= set(private_in(node))
    return found


def private_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            yield node.attr


def private_of_imported(tree: ast.Module) -> set[str]:
    """Private attributes of the classes of SimPy that a module imports."""
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "simpy"
        for alias in node.names
    }
    return {attribute for name in names for attribute in private_by_class()[name]}


def test_private_attributes_of_simpy_are_not_used() -> None:
    for path in product_files():
        if "simpy" in (text := path.read_text(encoding="utf-8")):
            tree = ast.parse(text)
            assert set(private_in(tree)) & private_of_imported(tree) == set(), path.relative_to(ROOT).as_posix()


def test_that_rule_sees_what_it_forbids() -> None:
    tree = ast.parse("from simpy.core import Environment\nclock._queue.append(1)\nself._own = 2\n")
    assert set(private_in(tree)) & private_of_imported(tree) == {"_queue"}


def test_every_test_is_found() -> None:
    """A test inside another function is never run; a merge has made four of them once."""
    inside = re.compile(r"\n(?:async )?def .*?(?=\n\S|\Z)", re.DOTALL)
    nested = re.compile(r"\n +(?:async )?def (test_\w+)")
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for function in inside.finditer("\n" + path.read_text(encoding="utf-8"))
        for name in nested.findall(function.group())
    ]
    assert found == []
