from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.execution import cluster, host
from testbed.execution.deployment import Ground
from tests.cluster.forked import ForkedAgents
from tests.faults import runs


@pytest.fixture
def directory_of_agents(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where agents of this test keep their files: agents remove what others have left, also those of other tests."""
    with tempfile.TemporaryDirectory(prefix="agents-") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ForkedAgents:
    """Let runs of ``tests.faults`` and of scripts that fail be deployed, too."""
    starter = ForkedAgents()

    def run_jobs(ground: Ground) -> list[BaseException | None]:
        only = ground.only
        cluster.run(only.plan, only.directory, only.report, starter)
        return [None]

    monkeypatch.setitem(host.BACK_ENDS, "cluster", run_jobs)
    monkeypatch.setitem(runs.BACK_ENDS, "cluster", run_jobs)
    return starter
