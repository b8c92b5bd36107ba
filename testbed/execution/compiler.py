"""Leaves torch's compiler out of processes that compile nothing.

Torch's optimizers import ``torch._dynamo`` at their first step, only to tell a compiler that it must not look at them.
The import takes as long as that of torch itself: 1.2 s of the processor before the nodes of a run start.
"""

from __future__ import annotations

import importlib
import importlib.abc
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from testbed.execution.scripts import is_scripted
from testbed.plan.model import Plan

NAME = "torch._dynamo"


class _Absent(ModuleType):
    """Stands in for ``torch._dynamo``, and imports the real module when another attribute of it is used."""

    def graph_break(self, *_: Any, **__: Any) -> None:
        """Do nothing, as the module's own function does while nothing is compiled."""

    def disable(self, function: Callable[..., Any], *_: Any, **__: Any) -> Callable[..., Any]:
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # code that inspects all modules asks for such names
            raise AttributeError(name)
        return getattr(_compiler(), name)


class _WithoutCompiler(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """First on the list of import finders; finds only the stand-in for the compiler."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == NAME else None

    def exec_module(self, module: ModuleType) -> None:
        """Replace the module object that Python has made by the stand-in."""
        sys.modules[NAME] = _Absent(NAME)


_WITHOUT_COMPILER = _WithoutCompiler()


def _compiler() -> ModuleType:
    """Import the real module in place of its stand-in."""
    if _WITHOUT_COMPILER in sys.meta_path:
        sys.meta_path.remove(_WITHOUT_COMPILER)
    if isinstance(sys.modules.get(NAME), _Absent):
        del sys.modules[NAME]
    return importlib.import_module(NAME)


def may_compile(plan: Plan) -> bool:
    """Return whether a run may need the compiler: it asks for it, or runs a script or command of the user."""
    return is_scripted(plan) or plan.program is not None or plan.training.compile


def leave_out_compiler() -> None:
    """Let this process import ``torch._dynamo`` only if it is needed, unless it has done so already."""
    if NAME not in sys.modules and _WITHOUT_COMPILER not in sys.meta_path:
        sys.meta_path.insert(0, _WITHOUT_COMPILER)


def bring_compiler() -> None:
    """Import the compiler if ``leave_out_compiler`` left it out; else each process forked from this one would do so."""
    if _WITHOUT_COMPILER in sys.meta_path:
        _compiler()
