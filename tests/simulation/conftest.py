"""Of all simulations' tests: one worker compiles the solver, and the others load what it has compiled."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator

import pytest

from testbed.simulation.solver_state import SolverState
from tests.simulation.brute import random_case, run_network


@pytest.fixture(scope="session", autouse=True)
def _one_worker_compiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """numba compiles at the first call, for eight seconds, and every worker would do so at the same time."""
    compile_solver = SolverState.compile
    shared = tmp_path_factory.getbasetemp().parent  # of all workers

    def first(state: SolverState) -> None:
        SolverState.compile = compile_solver  # type: ignore[method-assign]
        with (shared / "solver.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            run_network(random_case(0), compiled=True)
        compile_solver(state)

    SolverState.compile = first  # type: ignore[method-assign]
    yield
    SolverState.compile = compile_solver  # type: ignore[method-assign]
