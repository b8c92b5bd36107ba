from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def directory_of_agents(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where agents of this test keep their files: agents remove what others have left, also those of other tests."""
    with tempfile.TemporaryDirectory(prefix="agents-") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)
