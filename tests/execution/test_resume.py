"""Where a run is to go on from, and there is nothing."""

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.execution.resume import find


def test_a_folder_that_is_not_there_is_not_one_without_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="nothere: there is no such folder"):
        find(tmp_path / "nothere")
    with pytest.raises(ScenarioError, match="holds no checkpoint"):
        find(tmp_path)
