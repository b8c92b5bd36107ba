"""Techniques declare what they are: no product code asks for one by its name.

Counted are string constants that are kinds of an axis and are compared (``==``, ``!=``, ``in``, ``match``), used as
keys of a mapping or subscripts, or collected in a module's constant. A technique's own file may use its own name, the
axis' tables use all of theirs, and a study may choose techniques by name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from testbed.policy.collective import ALL_REDUCE, SPARSE
from testbed.policy.gossip import ALGORITHMS, GRAPHS
from testbed.scenario.reading.axes import AXES
from tests.architecture.sources import ROOT, product_files

TABLES = (
    "analysis/identity.py",
    "testbed/aggregation/__init__.py",
    "testbed/policy/*/__init__.py",
    "testbed/policy/gossip/graphs.py",
    "testbed/policy/collective/options.py",
    "testbed/policy/collective/shares.py",
    "testbed/codec/options.py",
    "testbed/engine/roles.py",
    "testbed/execution/distributed/torch_group.py",
    "testbed/codec/table.py",
    "testbed/training/*/__init__.py",
    "testbed/training/splits/__init__.py",
    "testbed/training/optimizers/key.py",
    "testbed/training/declared.py",
    "testbed/training/options/datasets.py",
    "testbed/paradigms.py",
    "topologies/generators.py",
    "topologies/traces/synthetic.py",
)
STUDIES = (
    "analysis/benchmarks/*",
    "analysis/studies/*",
    "analysis/notebooks/*",
)
# 'text' is also what a sample is, 'constant' a learning rate's schedule, 'none' a cell of a table without a value,
# 'mean' and 'median' are words of statistics.
AMBIGUOUS = {"text", "constant", "none", "mean", "median"}


@cache
def owners() -> dict[str, set[str]]:
    """Kinds of all axes, each with the modules that its table's entry is defined in."""
    found: dict[str, set[str]] = {}
    for table in (*AXES.values(), ALL_REDUCE, GRAPHS):
        for kind, entry in table.items():
            found.setdefault(kind, set()).add(getattr(entry, "__module__", ""))
    for kind in (*SPARSE, *ALGORITHMS):
        found.setdefault(kind, set())
    return {kind: modules for kind, modules in found.items() if kind not in AMBIGUOUS}


def constants(node: ast.AST | None) -> Iterator[ast.Constant]:
    """The strings of a constant or of a literal collection."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for element in node.elts:
            yield from constants(element)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("frozenset", "set"):
        for argument in node.args:
            yield from constants(argument)


def compared(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                yield from constants(side)
        elif isinstance(node, ast.MatchValue):
            yield from constants(node.value)


def tabulated(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key in node.keys:
                yield from constants(key)
        elif isinstance(node, ast.Subscript):
            yield from constants(node.slice)
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and not isinstance(statement.value, ast.Constant):
            yield from constants(statement.value)


def is_own(kind: str, path: str) -> bool:
    """Whether ``path`` is the file, or in the folder, of the technique ``kind``."""
    module = path.removesuffix(".py").replace("/", ".")
    return kind in Path(path).with_suffix("").parts or module in owners()[kind]


@cache
def written() -> re.Pattern[str]:
    """Return what finds the constants of kinds in a text: one without them, as most are, is not parsed."""
    return re.compile(rf"""["']({"|".join(map(re.escape, owners()))})["']""")


def names_in(path: str, text: str) -> Iterator[tuple[int, str]]:
    if not written().search(text):
        return
    tree = ast.parse(text)
    tables = any(fnmatch(path, pattern) for pattern in (*TABLES, *STUDIES))
    for constant in (*compared(tree), *(() if tables else tabulated(tree))):
        kind = str(constant.value)
        if kind in owners() and not is_own(kind, path):
            yield constant.lineno, kind


def test_no_code_asks_for_a_technique_by_name() -> None:
    found = [
        f"{path}:{line}: {kind!r}"
        for path, text in (
            (file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")) for file in product_files()
        )
        for line, kind in names_in(path, text)
    ]
    assert found == []


def test_every_table_exists() -> None:
    paths = [path.relative_to(ROOT).as_posix() for path in product_files()]
    assert [pattern for pattern in TABLES if not any(fnmatch(path, pattern) for path in paths)] == []


def test_the_rule_sees_what_it_forbids() -> None:
    text = 'WAITING = ("fsa", "hfa")\nif kind == "dgt" or kind in ("tap",): x["p3"] = {"esync": 1}\nkind = "fsa"\n'
    assert sorted(names_in("testbed/engine/server.py", text)) == [
        (1, "fsa"),
        (1, "hfa"),
        (2, "dgt"),
        (2, "esync"),
        (2, "p3"),
        (2, "tap"),
    ]
    assert list(names_in("testbed/policy/order/dgt.py", 'kind == "dgt"')) == []
    assert list(names_in("testbed/policy/sync/__init__.py", 'TABLE = {"fsa": 1}\nkind == "fsa"')) == [(2, "fsa")]
