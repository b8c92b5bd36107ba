"""Which MPI libraries are accepted, and the errors for others."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.errors import CapabilityError, RunFailed, ScenarioError
from testbed.execution.distributed.backends import require
from testbed.execution.distributed.mpi.library import interface_of
from testbed.scenario.load import load
from tests.engine.collectives.plans import serverless_plan

SCENARIO = Path(__file__).parents[4] / "scenarios" / "paradigms" / "mpi.yaml"
OPEN_MPI = "Open MPI v4.1.4, package: Debian OpenMPI\0"
OVER_UCX = "MPICH Version:      4.0.2\nMPICH Device:       ch4:ucx\n"


def test_without_mpi4py_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(CapabilityError, match=r"needs mpi4py and MPICH .*pip install mpi4py mpich"):
        require(serverless_plan([2, 1], "mpi", {}))


@pytest.mark.parametrize(("version", "named"), [(OPEN_MPI, "'Open MPI v4.1.4"), (OVER_UCX, "'MPICH .*ch4:ucx'")])
def test_an_mpi_that_it_cannot_start_is_refused(version: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(Get_library_version=lambda: version)
    package = SimpleNamespace(rc=SimpleNamespace(), MPI=found)
    monkeypatch.setitem(sys.modules, "mpi4py", package)
    with pytest.raises(CapabilityError, match=f"mpi4py has loaded {named}.*pip install mpi4py mpich"):
        require(serverless_plan([2, 1], "mpi", {}))
    assert package.rc.initialize is False  # else the import alone would have started it


def test_an_interface_is_known_by_its_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    with pytest.raises(RunFailed, match="has the address"):
        interface_of("192.0.2.77")


def test_virtual_time_refuses_it() -> None:
    with pytest.raises(ScenarioError, match="sockets of its own"):
        load(SCENARIO, ["run.on=simulate"])
