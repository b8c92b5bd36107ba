"""One mutation: the place of a mechanism, what takes its place, and the tests that must notice."""

from __future__ import annotations
import __future__

import contextlib
import importlib
import inspect
import os
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIMIT_S = "40"  # of a test: one that waits for what the mutation took away has noticed as well
Change = Callable[[Any], Any]  # from the mechanism as it is to what takes its place


@dataclass(frozen=True)
class Mutation:
    """``place``: ``module:name`` or ``module:Class.name``. ``tests``: files or tests that must notice."""

    place: str
    change: Change
    tests: tuple[str, ...]


def always(value: Any) -> Change:
    """A function that returns ``value`` for all arguments."""
    return lambda before: lambda *args, **kwargs: value


def instead(value: Any) -> Change:
    """Another value, function or class."""
    return lambda before: value


def edit(old: str, new: str) -> Change:
    """The same function with ``old`` replaced by ``new`` in its source. ``ValueError`` if it has no such text."""

    def changed(before: Any) -> Any:
        source = textwrap.dedent(inspect.getsource(before))
        if old not in source:
            raise ValueError(f"{before.__qualname__} has no {old!r}")
        names: dict[str, Any] = {}
        flags = __future__.annotations.compiler_flag
        code = compile(source.replace(old, new), inspect.getfile(before), "exec", flags, dont_inherit=True)
        exec(code, before.__globals__, names)
        return names[before.__name__]

    return changed


def target(mutation: Mutation) -> tuple[Any, str]:
    """The module or class that owns the mechanism, and its name there."""
    module, _, name = mutation.place.partition(":")
    owner = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    return owner, last


def apply(mutation: Mutation) -> None:
    """Break the mechanism in this process. ``AttributeError`` if there is none of that name."""
    owner, name = target(mutation)
    before = getattr(owner, name)
    after = mutation.change(before)
    setattr(owner, name, after)
    for module in list(sys.modules.values()):  # those that have imported it by its name
        if callable(before) and vars(module).get(name) is before:
            setattr(module, name, after)


def is_noticed(mutation: Mutation) -> bool:
    """Whether one of its tests fails, in a process forked from this one. ``RuntimeError`` if they did not run."""
    import pytest

    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        code = 99
        with contextlib.suppress(BaseException):
            apply(mutation)
            code = pytest.main(["-q", "-x", "--timeout", LIMIT_S, "-p", "no:cacheprovider", *mutation.tests])
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, 1):  # pytest's code of passed and of failed tests
        raise RuntimeError(f"{mutation.place}: its tests did not run (exit code {code})")
    return code == 1
