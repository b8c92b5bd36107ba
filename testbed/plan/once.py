"""Caches values derived from a Plan, for all nodes of a process: a simulation has thousands of nodes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from testbed.plan.model import Plan

P = ParamSpec("P")
R = TypeVar("R")


def once_per_plan(function: Callable[Concatenate[Plan, P], R]) -> Callable[Concatenate[Plan, P], R]:
    """Make ``function`` remember its results for each Plan, as long as that Plan exists.

    Callers must not change a result. Arguments beside the Plan are positional and hashable.

        @once_per_plan
        def best_ring(plan: Plan, bucket_bytes: float) -> tuple[str, ...]: ...
    """
    results_by_plan: dict[int, dict[tuple[object, ...], R]] = {}

    @wraps(function)
    def remembered(plan: Plan, /, *arguments: P.args, **named: P.kwargs) -> R:
        assert not named, f"{function.__name__} is called with positional arguments"
        results = results_by_plan.get(id(plan))
        if results is None:
            results = results_by_plan[id(plan)] = {}
            weakref.finalize(plan, results_by_plan.pop, id(plan))
        if arguments not in results:
            results[arguments] = function(plan, *arguments, **named)
        return results[arguments]

    return remembered
