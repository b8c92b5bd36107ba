"""A laboratory for training neural networks across data centres: emulated, simulated or local, from one scenario.

As a library: ``load``, ``run``, ``run_jobs``, ``open_run``, ``sweep``, ``compare``, ``presets``, ``advise``,
``topology`` and ``trace`` (``testbed.api``); ``Callback`` and ``StopRun`` (``testbed.callbacks``); the errors
``ScenarioError``, ``CapabilityError`` and ``RunFailed``. They are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed.version import VERSION

if TYPE_CHECKING:
    from testbed.api import (
        Advice,
        Comparison,
        Run,
        Scenario,
        Sweep,
        SweepComparison,
        advise,
        compare,
        load,
        open_run,
        presets,
        run,
        run_jobs,
        sweep,
        topology,
        trace,
    )
    from testbed.callbacks import Callback, StopRun
    from testbed.errors import CapabilityError, RunFailed, ScenarioError

__version__ = VERSION
__all__ = [
    "Advice",
    "Callback",
    "CapabilityError",
    "Comparison",
    "Run",
    "RunFailed",
    "Scenario",
    "ScenarioError",
    "StopRun",
    "Sweep",
    "SweepComparison",
    "advise",
    "compare",
    "load",
    "open_run",
    "presets",
    "run",
    "run_jobs",
    "sweep",
    "topology",
    "trace",
]
_ERRORS = ("CapabilityError", "RunFailed", "ScenarioError")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'testbed' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("testbed.errors" if name in _ERRORS else "testbed.api"), name)
