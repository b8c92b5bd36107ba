from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from testbed.execution import cluster
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

    run_jobs = partial(cluster.run_jobs, starter=starter)
    monkeypatch.setattr(cluster, "run_jobs", run_jobs)
    monkeypatch.setitem(runs.BACK_ENDS, "cluster", run_jobs)
    return starter
