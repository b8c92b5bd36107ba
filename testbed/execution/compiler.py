"""Leaves torch's compiler out of processes that compile nothing.

Torch's optimizers import ``torch._dynamo`` at their first step, only to tell a compiler that it must not look at them.
The import takes as long as that of torch itself: 1.2 s of the processor before the nodes of a run start.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from testbed.execution.scripts import is_scripted
from testbed.plan.model import Plan

NAME = "torch._dynamo"


class _Absent(ModuleType):
    """Stands for the module until something else of it is asked for: then it is imported after all."""

    def graph_break(self, *_: Any, **__: Any) -> None:
        """Do nothing, as the module's does where nothing is compiled."""

    def disable(self, function: Callable[..., Any], *_: Any, **__: Any) -> Callable[..., Any]:
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # what looks at all modules asks for such names
            raise AttributeError(name)
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME]
        return getattr(importlib.import_module(NAME), name)


def may_compile(plan: Plan) -> bool:
    """Return whether a run may need the compiler: it says so, or runs code of the user."""
    return is_scripted(plan) or plan.program is not None or plan.training.compile


def leave_out_compiler() -> None:
    """Let this process import ``torch._dynamo`` only if it is needed, unless it has done so already."""
    import torch

    if NAME not in sys.modules:
        sys.modules[NAME] = torch._dynamo = _Absent(NAME)


def bring_compiler() -> None:
    """Import what ``leave_out_compiler`` has left out, if it has: else each process forked from this one would."""
    absent = sys.modules.get(NAME)
    if isinstance(absent, _Absent):
        _ = absent.config
