"""The tables of mutations name what exists; ``python -m tests.mutations`` shows, in minutes, that each is noticed."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.mutations.mutation import ROOT, target
from tests.mutations.table import MUTATIONS


@cache
def _functions(file: str) -> dict[str, bool]:
    """Test functions of a file, and whether each is of the default suite."""
    return {
        node.name: not any(ast.unparse(mark).startswith("pytest.mark.slow") for mark in node.decorator_list)
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_has_a_mechanism_and_tests_of_the_default_suite(name: str) -> None:
    mutation = MUTATIONS[name]
    owner, last = target(mutation)
    mutation.change(getattr(owner, last))
    for test in mutation.tests:
        file, _, function = test.partition("::")
        assert _functions(file)[function] if function else any(_functions(file).values())


def test_there_are_enough() -> None:
    assert len(MUTATIONS) >= 60
